"""Completion scripts follow the parser, and work in bash."""
import argparse
import json
import shutil
import subprocess
import sys

import pytest

from shardtrace.cli.commands.completion import verbs_of
from shardtrace.cli.output import Output
from shardtrace.cli.parser import make_parser
from shardtrace.partitioner.cost.hardware import hardware_names

VERBS = ("explain", "watch", "lsp", "autoshard", "trace", "partition", "show", "collectives",
         "run", "check", "diff", "why", "propagate", "freedom", "freeze", "thaw", "fmt", "hlo",
         "reduce", "completion", "help")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_name_every_command_and_option(said, shell):
    status, out, _ = said("completion", shell)
    assert status == 0
    verbs = list(verbs_of(make_parser()))
    assert tuple(v.name for v in verbs) == VERBS
    for verb in verbs:
        assert verb.name in out
        for option in verb.options:
            for flag in option.flags:
                assert (flag if shell != "fish" else flag.lstrip("-")) in out


def completed(script, words, cwd):
    """What bash offers for the last word."""
    line = " ".join(f"'{w}'" for w in words)
    program = (f"{script}\nCOMP_WORDS=({line})\nCOMP_CWORD={len(words) - 1}\n_shardtrace\n"
               'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True,
                          cwd=cwd, check=True)
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_commands_options_values_and_files(said, tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "step.st").write_text("")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "dumps").mkdir()
    script = said("completion", "bash")[1]

    def offered(*words):
        return completed(script, ["shardtrace", *words], tmp_path)

    assert set(offered("")) == {*VERBS, "--help"}
    assert offered("ex") == ["explain"]
    assert offered("explain", "--hard") == ["--hardware"]
    assert tuple(offered("explain", "--hardware", "")) == tuple(hardware_names())
    assert offered("explain", "--hardware", "h1") == ["h100"]
    assert set(offered("explain", "")) == {"train.py", "step.st", "dumps/"}
    assert offered("explain", "tr") == ["train.py"]
    assert set(offered("completion", "")) == {"bash", "zsh", "fish"}
    assert "--check" in offered("fmt", "--c")
    assert offered("trace", "--arg", "") == []


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_zsh_reads_its_script(said):
    subprocess.run(["zsh", "-n"], input=said("completion", "zsh")[1], text=True, check=True)


def test_help_and_wrong_use(said):
    assert said("--help")[0] == 0
    for verb in VERBS:
        status, out, _ = said(verb, "--help")
        assert status == 0 and "exit status:" in out and "--json" in out
    for words in ([], ["nonsense"], ["explain"], ["explain", "a.py", "--nonsense"],
                  ["completion", "tcsh"]):
        assert said(*words)[0] == 2


def test_failures_are_json_too(said, tmp_path):
    status, out, err = said("explain", tmp_path / "none.py", "--json")
    found = json.loads(out)
    assert (status, found["status"], found["command"]) == (2, 2, "explain")
    assert "none.py" in found["error"] and "none.py" in err


def test_colours_on_request_and_none_when_piped(said, tmp_path):
    path = tmp_path / "p.st"
    path.write_text("program @f(x: f32[2]) -> f32[2] {\n  y: f32[2] = sin x  # a.py:3:1-5\n"
                    "  return y\n}\n")
    assert "\x1b[" not in said("trace", path)[1]
    assert "\x1b[" in said("trace", path, "--color", "always")[1]
    assert "\x1b[" not in said("trace", path, "--color", "always", "--json")[1]


def test_what_goes_on_in_the_next_line_is_coloured_as_a_whole(capsys):
    options = argparse.Namespace(verb="explain", color="always", width=40)
    Output(options).text("because: dimension 1 of `nn.gelu(x @ weights)` is whole; `add` takes it")
    assert "\x1b[35m`add`\x1b[0m" in capsys.readouterr().out


def test_the_package_is_the_command_too():
    done = subprocess.run([sys.executable, "-m", "shardtrace", "completion", "bash"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "complete -F _shardtrace" in done.stdout
