"""The commands of docs/cli.md and docs/profile.md print what the pages say.

A block of text after `<!-- file: NAME -->` is a file; in a `console` block, what follows a line
`$ shardtrace ...` is what the command prints, `...` standing for anything.
"""
from __future__ import annotations

import doctest
import pathlib
import re
import shlex
import sys

import pytest

from shardtrace.cli.main import main

DOCS = pathlib.Path(__file__).parent.parent / "docs"
PAGES = [DOCS / "cli.md", DOCS / "profile.md"]
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
