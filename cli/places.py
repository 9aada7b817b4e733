"""Places in the user's file, and calls that are made on behalf of one."""
from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..ir.support.caches import cached

T = TypeVar("T")


class Place(NamedTuple):
    """A span of one line of a file. Lines count from 1, columns from 0, in bytes of UTF-8. names:
    what the file defines.
    """

    file: str
    line: int
    column: int
    end_column: int
    names: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def call(self, fun: Callable[[], T]) -> T:
        """Call a function from this place: what it says of its caller's line names this one, though
        nothing in the file calls it.
        """
        tree = ast.parse("fun()", mode="eval")
        for node in ast.walk(tree.body):
            if isinstance(node, ast.expr):
                node.lineno = node.end_lineno = self.line
                node.col_offset, node.end_col_offset = self.column, self.end_column
        return eval(compile(tree, self.file, "eval"), self.names, {"fun": fun})


def place_of(path: Path, words: str, names: dict[str, Any]) -> Place | None:
    """Where a file defines a name, the last time, or else where these words stand in it; None if
    nowhere, or if the file cannot be parsed. names: what it defines.
    """
    try:
        source = path.read_text(encoding="utf-8")
        spans = _names(source)
    except (OSError, SyntaxError, ValueError):
        return None
    if words in spans:
        return Place(str(path), *spans[words], names)
    if words.isidentifier() or words not in source:
        return None
    before, _, _ = source.partition(words)
    start = len(before.rpartition("\n")[2].encode())
    return Place(str(path), before.count("\n") + 1, start, start + len(words.encode()), names)


@cached(2)
def _names(source: str) -> dict[str, tuple[int, int, int]]:
    """The names that a text binds or defines: line, column and end of the last time for each, at
    the top of the file if there is one.
    """
    found: dict[str, tuple[int, int, int]] = {}
    module = ast.parse(source)
    top = {id(node) for statement in module.body for node in (
        [statement] if hasattr(statement, "body") else ast.walk(statement))}
    for node in sorted(ast.walk(module), key=lambda node: id(node) in top):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            column = node.col_offset + len("class " if isinstance(node, ast.ClassDef) else "def ")
            found[node.name] = node.lineno, column, column + len(node.name.encode())
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = node.lineno, node.col_offset, node.end_col_offset or node.col_offset
    return found
