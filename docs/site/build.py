"""The site: `python docs/site/build.py [OUT]`, with what `pip install '.[docs]'` brings.

Pages of docs/ and those that are made (reference.py, the examples, CONTRIBUTING.md) are laid out in
a temporary folder, drawings (drawings.py) put in and links set right; Sphinx makes HTML of them.
Strict: whatever it warns of, a broken link or a page that nothing leads to, is an error.
"""
from __future__ import annotations

import ast
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile

import reference
from drawings import drawn

DOCS = reference.ROOT / "docs"
FROM_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md",
             "examples.md": "examples/README.md"}
MADE_FROM = {"ir/text/grammar.lark": "reference/grammar.md",
             "partitioner/passes.py": "reference/passes.md",
             "runtime/plans/passes.py": "reference/passes.md"}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def pages() -> dict[str, str]:
    """All pages of the site by path, as Markdown."""
    found = {str(path.relative_to(DOCS)): path.read_text() for path in DOCS.rglob("*.md")}
    found |= {page: (reference.ROOT / name).read_text() for page, name in FROM_ROOT.items()}
    made = examples()
    found |= reference.pages() | made
    found["examples.md"] += reference.contents(name.removesuffix(".md") for name in made)
    return {path: with_links(path, drawn(text), set(found)) for path, text in found.items()}


def examples() -> dict[str, str]:
    """A page for each example: what its docstring says, and the program."""
    found = {}
    for path in sorted((reference.ROOT / "examples").glob("*.py")):
        source = path.read_text()
        doc = reference.as_markdown(ast.get_docstring(ast.parse(source)) or "")
        found[f"examples/{path.stem}.md"] = f"# {path.name}\n\n{doc}\n\n```python\n{source}```\n"
    return found


def with_links(page: str, text: str, known: set[str]) -> str:
    """The page with links to other files of the repository leading to the pages made of these, or
    to none where there is no page."""
    folder = posixpath.dirname(FROM_ROOT.get(page, f"docs/{page}"))
    of_file = {name: made for made, name in FROM_ROOT.items()} | MADE_FROM
    of_file |= {p.removesuffix("md") + "py": p for p in known if p.startswith("examples/")}

    def link(match: re.Match[str]) -> str:
        shown, target, anchor = match[1], match[2], match[3] or ""
        there = posixpath.normpath(posixpath.join(folder, target))
        to = of_file.get(there, there.removeprefix("docs/"))
        if to in known:
            return f"[{shown}]({posixpath.relpath(to, posixpath.dirname(page) or '.')}{anchor})"
        return f"`{there}`" if (reference.ROOT / there).exists() else match[0]

    return _LINK.sub(link, text)


def main(out: str = str(reference.ROOT / "build" / "site")) -> int:
    """Make the site; the exit status of Sphinx."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in pages().items():
            page = pathlib.Path(folder) / path
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text)
        shutil.copy(pathlib.Path(__file__).parent / "conf.py", folder)
        return subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n",
                               "-d", f"{folder}/.doctrees", folder, out]).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
