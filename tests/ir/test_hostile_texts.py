"""Programs that anybody may have written: how little their text can make its reader do."""
from __future__ import annotations

import os

import pytest

import shardtrace as st
from shardtrace.cli.main import main
from shardtrace.ir.diagnostic import visible
from shardtrace.ir.text.parse import load_program
from shardtrace.ir.verify import verify

PRINT = """mesh (X=1)
program @f(x: f32[2]) -> f32[2] {{
  debug_print[fmt={fmt!r}, in_tree=None, keywords=('x',), static_args=(), axes=()] x
  return x
}}
"""


@pytest.mark.parametrize("fmt", [
    "{x.__class__}", "{x.__class__.__init__.__globals__}", "{x.sharding}", "{x[0].__doc__}",
    "{x:1000000000}", "{x:{x}}", "{x!r:>1000000}", "{x:.99999}", "{x:>{x.shape[0]}}"])
def test_debug_prints_of_texts_look_up_arguments_only(fmt: str) -> None:
    with pytest.raises(st.errors.VerificationError, match="debug"):
        verify(st.parse_program(PRINT.format(fmt=fmt)))


@pytest.mark.parametrize("fmt", ["{x}", "{x!r:>20}", "{x.shape}", "{x[0]}", "{x.dtype} {{}}"])
def test_plain_fields_of_debug_prints_are_right(fmt: str) -> None:
    verify(st.parse_program(PRINT.format(fmt=fmt)))


def test_a_traced_debug_print_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="looks up more than an argument"):
        st.jit(lambda x: st.debug.print("{x.__class__}", x=x))(1.0)


TOLD = """mesh (X=1 manual)
level local
program @f(x: f32[2]) -> f32[2] {{
  y: f32[2] = neg x  # {place}
  return y
}}

file s.py = "{file}"
"""


def _line(file: str, folder, place: str = "s.py:1:1-4") -> str:
    (folder / "p.st").write_text(TOLD.format(file=file, place=place))
    program = load_program(folder / "p.st")
    return program.eqns[0].location.source_line()


def test_sources_are_read_under_the_folder_of_a_text_or_the_current_one_only(tmp_path, monkeypatch
                                                                             ) -> None:
    inside, outside, here = tmp_path / "in", tmp_path / "out", tmp_path / "here"
    for folder in (inside, outside, here):
        folder.mkdir()
        (folder / "s.py").write_text("the source\n")
    monkeypatch.chdir(here)
    assert _line(str(inside / "s.py"), inside) == "the source"
    assert _line(str(here / "s.py"), inside) == "the source"
    assert _line(str(outside / "s.py"), inside) == ""
    assert _line("/etc/passwd", inside) == ""
    (inside / "link.py").symlink_to(outside / "s.py")
    assert _line(str(inside / "link.py"), inside) == ""
    os.mkfifo(inside / "pipe.py")
    assert _line(str(inside / "pipe.py"), inside) == ""
    assert _line("/dev/zero", inside) == ""


def test_columns_beyond_a_line_are_clipped(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("x = 1\n")
    (tmp_path / "p.st").write_text(
        TOLD.format(file="s.py", place="s.py:1:900000000-999999999").replace("neg x", "neg x x"))
    assert main(["show", "p.st"]) != 0
    assert len(capsys.readouterr().err) < 4_000


def test_control_characters_of_a_text_are_shown_escaped(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("x = '\x1b]0;title\x07' \x9b \u202e\n")
    text = TOLD.format(file="s.py", place="s.py:1:1-4").replace(
        "@f", '@"\\x1b[2J"').replace("  return", "  # \x1b[31m\n  return")
    (tmp_path / "p.st").write_text(text)
    (tmp_path / "bad.st").write_text(text.replace("neg x", "neg x x"))
    (tmp_path / "worse.st").write_text(text.replace("neg x", "neg \x1b[2J"))
    for name in ("p.st", "bad.st", "worse.st"):
        for command in ("show", "explain", "run", "partition", "fmt"):
            main([command, name])
            said = capsys.readouterr()
            for character in said.out + said.err:
                assert character in "\n\t" or character.isprintable(), (command, name)


def test_text_that_can_be_printed_stays() -> None:
    assert visible("é \t\n 漢 \\x") == "é \t\n 漢 \\x" and visible("\x1b\u202e") == "\\x1b\\u202e"
