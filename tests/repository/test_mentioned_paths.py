"""Source files that docstrings, comments and documents name exist; one named without its folder is
of the same top-level folder, and in the docstring of a package, of that package.
"""
from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from ..paths import ROOT

PLACES = ("ir", "tracer", "partitioner", "planning", "arrays", "runtime", "engines", "driver",
          "report", "interop", "studio", "api", "cli", "as_jax", "tests", "benchmarks", "docs")
SOURCES = [path for place in PLACES for path in (ROOT / place).rglob("*.py")]
DOCUMENTS = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), ROOT / "tests/README.md"]
# Files of users, which explanations of commands and of diagnostics show.
OF_USERS = {"f.py", "file.py", "FILE.py", "layer.py", "program.py", "train.py"}
SESSION = re.compile(r"^<!-- file:.*?$|^```(?:console|python).*?^```", re.M | re.S)
PATH = re.compile(r"(?<![\w/.<{*-])((?:\w+/)*\w+\.py)\b(?![\w.])")
# In the docstring of a package: `caches.py`, `ops/`, and the names that begin the rows of a table.
IN_PACKAGE = re.compile(r"(?<![\w/.<{*-])((?:\w+/)*\w+(?:\.py\b|/))(?![\w.])")
ROW = re.compile(r"^ {0,4}([a-z_]\w*(?:\.py|/)?(?:, [a-z_]\w*(?:\.py|/)?)*) {2,}\S", re.M)


def texts(path: Path) -> Iterator[str]:
    source = path.read_text()
    if path.suffix == ".md":
        yield SESSION.sub("", source)
        return
    if ".py" not in source:             # most: parsing all takes long
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""
    if re.search(r"#.*\.py", source):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.string


def test_paths_named_in_docstrings_comments_and_documents_exist():
    at_root = {path.name for path in ROOT.glob("*.py")} | OF_USERS
    in_place = {place: {path.name for path in (ROOT / place).rglob("*.py")} for place in PLACES}
    everywhere = set().union(*in_place.values())
    dead = []
    for path in (*SOURCES, *DOCUMENTS):
        place = path.relative_to(ROOT).parts[0]
        names = at_root | (everywhere if place in ("tests", "docs") or path in DOCUMENTS
                           else in_place[place])
        above = [path.parent, *(p for p in path.parents if p.is_relative_to(ROOT))]
        for text in texts(path):
            for named in PATH.findall(text):
                found = (any((folder / named).exists() for folder in above)
                         or path.suffix == ".md" and next(ROOT.glob(f"*/{named}"), None)
                         if "/" in named else named in names)
                if not found:
                    dead.append(f"{path.relative_to(ROOT)}: {named}")
    assert not dead, "\n".join(dead)


def _holds(folder: Path, named: str) -> bool:
    """Is there a module or package of this name? A path may also begin at a folder above."""
    name = named.removesuffix("/").removesuffix(".py")
    above = [p for p in folder.parents if p.is_relative_to(ROOT)] if "/" in named else []
    return any((place / name).is_dir() or (place / f"{name}.py").exists()
               for place in (folder, *above))


def test_modules_named_in_the_docstring_of_a_package_are_in_that_package():
    lies = []
    for path in (p for p in SOURCES if p.name == "__init__.py"):
        folder, doc = path.parent, ast.get_docstring(ast.parse(path.read_text())) or ""
        named = [name for name in IN_PACKAGE.findall(doc) if name not in OF_USERS]
        for paragraph in doc.split("\n\n"):
            rows = [name for row in ROW.findall(paragraph) for name in row.split(", ")]
            if any(_holds(folder, name) for name in rows):      # else a table of something else
                named += rows
        lies += [f"{path.relative_to(ROOT)}: {n}" for n in named if not _holds(folder, n)]
    assert not lies, "\n".join(lies)
