"""The places in a file where names are bound: targets of assignments, parameters of functions."""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..watched_file import syntax_tree

Span = tuple[int, int, int, int]         # line from 1, column, end line, end column; in characters

_AGAIN = re.compile(r"_\d+$")            # `h_1` is the second value that is called `h`


class Names:
    """first_import: lines above the first import of the file, those `from __future__` aside."""

    def __init__(self, source: str) -> None:
        self.lines = source.split("\n")
        self.first_import = 0
        self._targets: dict[str, list[tuple[int, int, Span]]] = {}    # first and last line of each
        self._parameters: dict[tuple[str, str], Span] = {}
        try:
            tree = syntax_tree(source)
        except (SyntaxError, ValueError):
            return
        imports = [n.lineno for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)
                   and getattr(n, "module", "") != "__future__"]
        self.first_import = imports[0] - 1 if imports else 0
        for node in ast.walk(tree) if ":=" in source else _statements(tree.body):
            if isinstance(node, ast.Assign):
                self._bind(node, node.targets)
            elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
                self._bind(node, [node.target])
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    self._parameters.setdefault((node.name, a.arg), self._span(
                        a.lineno, a.col_offset, a.lineno, a.col_offset + len(a.arg.encode())))

    def _bind(self, node: ast.stmt | ast.expr, targets: list[ast.expr]) -> None:
        for target in targets:
            for name in (target,) if isinstance(target, ast.Name) else ast.walk(target):
                if isinstance(name, ast.Name):
                    self._targets.setdefault(name.id, []).append((
                        node.lineno, node.end_lineno or node.lineno,
                        self._span(name.lineno, name.col_offset, name.end_lineno or name.lineno,
                                   name.end_col_offset or name.col_offset)))

    def _span(self, line: int, column: int, end_line: int, end_column: int) -> Span:
        """Columns of `ast` count bytes."""
        def characters(n: int, at: int) -> int:
            text = self.lines[n - 1]
            return at if text.isascii() else len(text.encode()[:at].decode(errors="ignore"))
        return line, characters(line, column), end_line, characters(end_line, end_column)

    def target(self, name: str, line: int) -> Span | None:
        """Where the value of an expression of this line is given a name."""
        known = self._targets.get(name) or self._targets.get(_AGAIN.sub("", name), [])
        around = [t for t in known if t[0] <= line <= t[1]]
        return min(around, key=lambda t: t[1] - t[0])[2] if around else None

    def parameter(self, function: str, name: str) -> Span | None:
        return self._parameters.get((function, name))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, and those inside of them."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            if inner:
                yield from _statements(inner)
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(part.body)
