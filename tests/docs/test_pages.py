"""Pages of docs/ tell the truth: their code runs, block after block, from top to bottom."""
from __future__ import annotations

import pathlib
import re

import pytest

from ..paths import DOCS

PAGES = [DOCS / name for name in ("autoshard.md", "checkpoints.md", "cost-model.md", "engines.md",
                                  "explain.md", "interop.md", "migrating.md", "performance.md")]


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_the_code_of_a_page_runs(page: pathlib.Path) -> None:
    names: dict = {}
    text = page.read_text()
    for library in {*re.findall(r"\w+", " ".join(re.findall(r"<!-- needs: (.*) -->", text)))}:
        pytest.importorskip(library)
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text[:match.start()].count("\n") + 1
        exec(compile("\n" * line + match[1], str(page), "exec"), names)


def test_files_that_pages_name_are_there() -> None:
    root = DOCS.parent
    for page in (root / "README.md", root / "CONTRIBUTING.md", *DOCS.rglob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_term_of_the_glossary_is_used_and_has_a_meaning_and_a_source() -> None:
    root = DOCS.parent
    rooms = ("ir", "tracer", "partitioner", "arrays", "runtime", "report", "driver")
    used = "\n".join(path.read_text() for room in rooms for path in (root / room).rglob("*.py"))
    used += "\n".join(page.read_text() for page in DOCS.glob("*.md") if page.name != "glossary.md")
    used = " ".join(re.sub(r"[-_]", " ", used.lower()).split())
    rows = re.findall(r"^\| (?!term|---)(.+) \| (.+) \| (.+) \|$",
                      (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert len(rows) > 50
    for term, _, _ in rows:
        for name in re.sub(r" \(.*?\)", "", term).split(", "):
            assert re.sub(r"[-_]", " ", name.lower()) in used, f"nothing speaks of {name!r}"
    assert len({term for term, _, _ in rows}) == len(rows)
