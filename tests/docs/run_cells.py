"""Run a file of notebook cells with shardtrace or with jax, and print what each cell printed.

    cd tests/docs
    python run_cells.py tour_cells/arrays.py                 # with shardtrace
    ORACLE run_cells.py tour_cells/arrays.py --library jax   # its imports changed

A cell begins at a line `# %% name`; cells marked `[markdown]` are text. As in a notebook, names
live on from cell to cell, and a last expression that is not None is shown by its `repr`. A cell
that raises does not stop the file. The output is the golden format, which `parse` reads back:

    %% name of the cell
    | a line of output
    !IndivisibleError(ValueError): first line of the message

Nothing here imports the library under test: the file's own imports do, renamed for jax.
"""
from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import io
import linecache
import pathlib
import re
import sys

# What JAX 0.10.2 calls or does differently from the documents that this project follows
# (docs/differences.md): make_mesh gives Auto axes, and sharding.use_mesh exists.
JAX_PRELUDE = """
import jax
def _auto_by_default(shape, names, axis_types=None, *, _make_mesh=jax.make_mesh, **rest):
    if axis_types is None:
        axis_types = (jax.sharding.AxisType.Auto,) * len(shape)
    return _make_mesh(shape, names, axis_types, **rest)
jax.make_mesh = _auto_by_default
jax.sharding.use_mesh = jax.set_mesh
del _auto_by_default
"""

NO_NEWS = ("Exception", "BaseException", "object")


@dataclasses.dataclass
class Cell:
    """One code cell: its name, its source, and the line of the file where the source begins."""
    name: str
    source: str
    line: int


@dataclasses.dataclass
class Outcome:
    """What a cell printed, and the error that ended it: its class and bases, and its first line."""
    name: str
    output: str
    error_classes: tuple[str, ...] = ()
    error_text: str = ""


def split_cells(text: str, until: str | None = None) -> list[Cell]:
    """The code cells of a file, up to a markdown cell with the line `until`."""
    cells: list[Cell] = []
    name, first, lines, markdown = "setup", 1, [], False

    def close() -> None:
        source = "\n".join(lines)
        if not markdown and source.strip():
            cells.append(Cell(name or f"cell {len(cells) + 1}", source, first))

    for number, line in enumerate(text.splitlines(), 1):
        if until is not None and line.strip() == until:
            return cells
        if line.startswith("# %%"):
            close()
            markdown = "[markdown]" in line
            name, first, lines = line.removeprefix("# %%").strip(), number + 1, []
        else:
            lines.append(line)
    close()
    return cells


def run_cell(cell: Cell, path: str, namespace: dict) -> Outcome:
    """Execute one cell in `namespace` as a notebook would."""
    tree = ast.parse("\n" * (cell.line - 1) + cell.source, path)
    shown = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not cell.source.rstrip().endswith(";"):
        shown = ast.Expression(tree.body.pop().value)
    out = io.StringIO()
    error: Exception | None = None
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(tree, path, "exec"), namespace)
            if shown is not None:
                value = eval(compile(shown, path, "eval"), namespace)
                if value is not None:
                    print(repr(value))
        except Exception as raised:  # any error is an outcome
            error = raised
    outcome = Outcome(cell.name, out.getvalue())
    if error is not None:
        bases = (base.__name__ for base in type(error).__mro__)
        outcome.error_classes = tuple(b for b in bases if b not in NO_NEWS)
        outcome.error_text = next(iter(str(error).splitlines()), "")
    return outcome


def run_file(path: pathlib.Path, library: str, until: str | None = None) -> list[Outcome]:
    """The outcome of every code cell of a file under `library` (shardtrace or jax)."""
    text = path.read_text()
    namespace: dict = {"__name__": "__main__", "__file__": path.name}
    if library == "jax":
        text = re.sub(r"\bshardtrace\b", "jax", text)
        exec(JAX_PRELUDE, {})
    linecache.cache[path.name] = (len(text), None, text.splitlines(keepends=True), path.name)
    return [run_cell(cell, path.name, namespace) for cell in split_cells(text, until)]


def render(outcomes: list[Outcome]) -> str:
    """Outcomes in the golden format. Memory addresses are hidden."""
    lines = []
    for outcome in outcomes:
        lines.append(f"%% {outcome.name}")
        lines += [f"| {line}".rstrip() for line in outcome.output.splitlines()]
        if outcome.error_classes:
            name, *bases = outcome.error_classes
            name += f"({', '.join(bases)})" if bases else ""
            lines.append(f"!{name}: {outcome.error_text}".rstrip())
    return re.sub(r"0x[0-9a-f]{6,}", "0x...", "\n".join(lines) + "\n")


def parse(text: str) -> list[Outcome]:
    """The inverse of `render`."""
    outcomes: list[Outcome] = []
    for line in text.splitlines():
        if line.startswith("%% "):
            outcomes.append(Outcome(line[3:], ""))
        elif line.startswith("|"):
            outcomes[-1].output += line[2:] + "\n"
        elif line.startswith("!"):
            names, _, message = line[1:].partition(":")
            outcomes[-1].error_classes = tuple(re.findall(r"\w+", names))
            outcomes[-1].error_text = message.strip()
    return outcomes


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("file", type=pathlib.Path)
    options.add_argument("--library", choices=("shardtrace", "jax"), default="shardtrace")
    options.add_argument("--until", help="stop at the markdown line that reads so")
    chosen = options.parse_args()
    show(chosen.file, chosen.library, chosen.until)


def show(path: pathlib.Path, library: str = "shardtrace", until: str | None = None) -> None:
    """Print what each cell of a file printed."""
    sys.stdout.write(render(run_file(path, library, until)))


if __name__ == "__main__":
    main()
