"""The tutorial, recipes and explanations print what they say, from first block to last.

The Python blocks of a page are one program that grows, in a file of the page's name: each is run
when it is reached. A block of text behind one shows what it printed; `console` blocks are commands
and what they print; a block behind `<!-- file: NAME -->` is a file. With `--update-golden`, what is
printed now is written into the page. `<!-- needs: flax -->`: libraries without which it is skipped.
"""
from __future__ import annotations

import contextlib
import io
import linecache
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from shardtrace.cli.main import main

from ..paths import DOCS
from .test_commands import forget

PAGES = sorted((*DOCS.glob("*/*.md"), DOCS / "st_files.md"))
BLOCK = re.compile(r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<kind>python|text|console)\n"
                   r"(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Reader:
    """Does what a page says, in a folder of its own."""

    def __init__(self, page: pathlib.Path, folder: pathlib.Path) -> None:
        self.folder, self.program = folder, folder / f"{page.stem.lstrip('0123456789-')}.py"
        self.names: dict = {"__name__": "__main__"}
        self.source, self.printed, self.end = "", "", -1

    def block(self, match: re.Match[str]) -> str:
        """The block as it should stand on the page."""
        kind, text = match["kind"], match["text"]
        if match["file"]:
            (self.folder / match["file"]).write_text(text)
            return match[0]
        if kind == "python":
            self.printed, self.end = self.run(text), match.end()
        elif kind == "console":
            text = "".join(map(self.command, re.findall(r"^\$ (.*)\n", text, re.MULTILINE)))
        elif match.string[self.end:match.start()].strip() == "" and self.end >= 0:
            text = self.printed
        return f"```{kind}\n{text}```"

    def run(self, block: str) -> str:
        lines = self.source.count("\n")
        self.source += block + "\n"
        self.program.write_text(self.source)
        linecache.checkcache(str(self.program))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile("\n" * lines + block, str(self.program), "exec"), self.names)
        return self.plain(said.getvalue())

    def command(self, command: str) -> str:
        words = shlex.split(command)
        assert words[0] in ("shardtrace", "python", "cat"), command
        if words[0] == "cat":
            said = (self.folder / words[1]).read_text()
        elif words[0] == "python":
            done = subprocess.run([sys.executable, *words[1:]], cwd=self.folder, text=True,
                                  capture_output=True, check=True)
            said = self.plain(done.stdout)
        else:
            with contextlib.redirect_stdout(io.StringIO()) as out, \
                    contextlib.redirect_stderr(out):
                main(words[1:])
            said = self.plain(out.getvalue())
        return f"$ {command}\n{said}"

    def plain(self, text: str) -> str:
        """What is printed, without what differs from folder to folder."""
        text = re.sub(r"^file .*\n?", "", text, flags=re.MULTILINE)
        lines = text.replace(f"{self.folder}/", "").rstrip().split("\n")
        return "".join(f"{line.rstrip()}\n" for line in lines) if text.strip() else ""


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_prints_what_it_says(page, tmp_path, monkeypatch, request):
    text = page.read_text()
    for library in re.findall(r"\w+", " ".join(re.findall(r"<!-- needs: (.*) -->", text))):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "88")
    printed = BLOCK.sub(Reader(page, tmp_path).block, text)
    forget(tmp_path)
    if request.config.getoption("--update-golden"):
        page.write_text(printed)
    else:
        assert printed == text
