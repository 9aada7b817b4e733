"""The commands of docs/cli.md, docs/profile.md and docs/architecture.md print what the pages say.

A block of text after `<!-- file: NAME -->` is a file; in a `console` block, what follows a line
`$ shardtrace ...` is what the command prints, `...` standing for anything.
"""
from __future__ import annotations

import doctest
import json
import pathlib
import re
import shlex
import sys

import pytest

from shardtrace.cli.main import main
from shardtrace.ir.support import caches

from ..paths import DOCS

PAGES = [DOCS / "cli.md", DOCS / "profile.md", DOCS / "architecture.md"]
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"(?<!-->\n)^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """(command, what it prints) of a block."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def forget(folder: pathlib.Path) -> None:
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_commands_print_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    text = page.read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for match in FILE.finditer(text):
        (tmp_path / match[1]).write_text(match[2])
    checker, status = doctest.OutputChecker(), 0
    for block in CONSOLE.finditer(text):
        for command, wanted in commands(block[1]):
            words = shlex.split(command)
            if words == ["echo", "$?"]:
                said = f"{status}\n"
            else:
                assert words[0] == "shardtrace", command
                caches.forget("driver.execution.partition_cache")     # a process of its own
                status = main(words[1:])
                printed = capsys.readouterr()
                said = (printed.out + printed.err).replace(str(tmp_path), "")
            assert checker.check_output(wanted.rstrip() + "\n", said.rstrip() + "\n",
                                        doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), (
                f"{page.name}: $ {command}\n{said}\ninstead of\n{wanted}")
    forget(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    text = page.read_text()
    monkeypatch.chdir(tmp_path)
    files = {match[2] for match in FILE.finditer(text)}
    names: dict = {}
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if match[1] not in files:
            exec(compile(match[1], str(page), "exec"), names)


def test_the_fields_of_json_are_those_of_the_page(tmp_path, monkeypatch, capsys):
    text = (DOCS / "cli.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for match in FILE.finditer(text):
        (tmp_path / match[1]).write_text(match[2])
    (tmp_path / "dumps").mkdir()
    rows = dict(re.findall(r"^\| `(\w+)`[^|]* \| (.*) \|$", text.split("## JSON")[1], re.MULTILINE))
    commands_ = {
        "explain": "train.py:layer --suggest 1", "collectives": "train.py:layer",
        "run": "train.py:layer --most 4", "check": "train.py:layer --budget budget.toml",
        "why": "train.py:layer h.1", "diff": "train.py:layer train.py:layer",
        "fmt": "--check add.st", "completion": "bash", "trace": "train.py:layer",
        "reduce": "train.py:layer --collective all-gather"}
    for verb, words in commands_.items():
        assert main([verb, *shlex.split(words), "--json"]) in (0, 1)
        found = json.loads(capsys.readouterr().out)
        listed = re.findall(r"`([^`]*)`", rows[verb])
        fields = set(listed[0].split())
        if verb in ("trace",):
            fields -= {"stages"}
        assert fields <= set(found), (verb, fields - set(found))
        if verb == "explain":
            assert set(found) - {"schema", "command"} == fields
            assert set(found["collectives"][0]) == set(listed[1].split())
            assert set(found["collectives"][0]["suggestions"][0]) == set(listed[2].split())
    forget(tmp_path)
