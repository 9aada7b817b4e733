"""The user's statements: where an expression stands, what may be written there, and how.

An edit is a place in the source and the text that stands there instead, which may be several lines.
"""
from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .....ir.source.location import Location, source_version
from .....ir.support.caches import cached

Edit = tuple[Location, str]
_ELSEWHERE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp,
              ast.BoolOp)
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)


class Statement(NamedTuple):
    """A simple statement that is alone on its line. node: parsed; column: of an expression in it.
    """
    location: Location
    node: ast.stmt
    text: str
    column: int

    def with_lines(self, before: Sequence[str], text: str, after: Sequence[str] = ()) -> Edit:
        """The statement as another text, between other lines."""
        indent = "\n" + " " * self.location.column
        return self.location, indent.join([*before, text, *after])

    def replaced(self, old: str, items: Sequence[str]) -> str:
        """The statement with a list in place of the expression at the column; without its brackets
        where it is unpacked.
        """
        before, behind = self.text[:self.column], self.text[self.column + len(old):]
        unpacked = not behind and isinstance(self.node, ast.Assign) and all(
            isinstance(t, ast.Tuple) for t in self.node.targets) and before.endswith("= ")
        new = ", ".join(items)
        return f"{before}{new if unpacked else f'[{new}]'}{behind}"


def statement_of(at: Location) -> Statement | None:
    """The statement that evaluates an expression whenever it runs, once; None if there is none on a
    line of its own.
    """
    tree, line = syntax_tree(at.file, source_version(at.file)), at.source_line()
    if tree is None or not line.isascii() or at.line != at.end_line:
        return None
    found, span = None, (at.line, at.column, at.end_line, at.end_column)
    node: ast.AST = tree
    while True:
        if isinstance(node, _SIMPLE):
            found = node
        if isinstance(node, ast.expr) and _span(node) == span:
            break
        inner = next((n for n in ast.iter_child_nodes(node) if _holds(n, span)), None)
        if inner is None or isinstance(node, _ELSEWHERE):
            return None
        node = inner
    if found is None or line[:found.col_offset].strip() or (
            line[found.end_col_offset:].lstrip()[:1] not in ("", "#")):
        return None
    text = line[found.col_offset:found.end_col_offset]
    own = Location.at(at.file, at.line, found.col_offset, at.line, found.end_col_offset)
    return Statement(own, found, text, at.column - found.col_offset)


def is_kept(text: str, made: Location, at: Location, own: bool = False) -> bool:
    """Has an expression of one place the same value at a later one: in the same call of the same
    function, with its names bound to what they were? own: without the statement of that place.
    """
    if (made.file, made.function, made.chain) != (at.file, at.function, at.chain) or not (
            made.line <= at.line):
        return False
    if is_inside(made, at):
        return True
    tree = syntax_tree(at.file, source_version(at.file))
    try:
        names = names_in(text)
    except SyntaxError:
        return False
    return tree is not None and names.isdisjoint(
        name for line, name in _bound(tree) if made.line + own <= line < at.line)


def names_in(text: str) -> set[str]:
    """The names that a text of Python reads or binds. Raises SyntaxError if it is none."""
    return {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}


def rebound_name(at: Location) -> str:
    """The name that a call takes first and whose value it replaces, as in `x = f(x, ...)`; "" if it
    is no such statement, or the only one of its block.
    """
    stand, tree = statement_of(at), syntax_tree(at.file, source_version(at.file))
    if stand is None or tree is None or not isinstance(stand.node, ast.Assign):
        return ""
    call = stand.node.value
    if not isinstance(call, ast.Call) or not call.args or stand.text[stand.column:] != at.text():
        return ""
    names = [ast.unparse(n) for n in (*stand.node.targets, call.args[0])]
    alone = any(len(block) == 1 and block[0].lineno == at.line for n in ast.walk(tree)
                for block in (getattr(n, "body", ()), getattr(n, "orelse", ()))
                if isinstance(block, list))
    return names[0] if len({*names}) == 1 and names[0].isidentifier() and not alone else ""


def is_inside(one: Location, at: Location) -> bool:
    """Is an expression the one at a place, or a part of it?"""
    return (one.file == at.file and (at.line, at.column) <= (one.line, one.column)
            and (one.end_line, one.end_column) <= (at.end_line, at.end_column))


def unused(at: Location, *names: str) -> list[str]:
    """Such names, with underscores behind those that the file has already."""
    source = "".join(linecache.getlines(at.file))

    def fresh(name: str) -> str:
        return fresh(f"{name}_") if re.search(rf"\b{name}\b", source) else name

    return [*map(fresh, names)]


def has_module(at: Location, name: str) -> bool:
    """Does the file import, or use, a module by this name?"""
    return bool(re.search(rf"\b{name}\.\w|\bas {name}\b|(?m:^\s*from .* import .*\b{name}\b)",
                          "".join(linecache.getlines(at.file))))


def path_of(at: Location, name: str, module: str = "") -> str:
    """How a file calls something of the package, or of a module in it: as it imports it or calls it
    elsewhere, or by the package's name.
    """
    source = "".join(linecache.getlines(at.file))
    if re.search(rf"(?m:^\s*(from .*|import .*)\b{name}\b)", source):
        return name
    used = re.search(rf"\b(\w+(\.\w+)*)\.{name}\b", source)
    package = re.search(r"(?m:^\s*import (?:shardtrace|jax)(?: as (\w+))?$)", source)
    if used is None and package is not None:
        return ".".join(filter(None, [package[1] or package[0].split()[1], module, name]))
    return used[0] if used is not None else name


def call_of(text: str, *names: str) -> ast.Call | None:
    """The call that a text of one line is, of a function with one of these names, if any are given.
    """
    try:
        found = ast.parse(text, mode="eval").body if text.isascii() else None
    except SyntaxError:
        return None
    return found if isinstance(found, ast.Call) and (
        not names or called_name(found) in names) else None


def called_name(call: ast.Call) -> str:
    """The name of what is called, without the modules that it is in."""
    return ast.unparse(call.func).rpartition(".")[-1]


def module_of(call: ast.Call) -> str:
    """The module of what is called as it is written, with a dot; "" if there is none."""
    found = ast.unparse(call.func).rpartition(".")
    return "".join(found[:2])


def as_operand(text: str) -> str:
    """An expression as an operand of another one: in parentheses, if it has operators."""
    try:
        whole = isinstance(ast.parse(text, mode="eval").body,
                           ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)
    except SyntaxError:
        whole = False
    return text if whole else f"({text})"


def in_place(at: Location, text: str) -> str:
    """An expression in the place of the one at a location: in parentheses if it has operators and
    that is part of a longer one.
    """
    line = at.source_line()
    before, after = line[:at.column].rstrip(), line[at.end_column:].lstrip()
    alone = (before.endswith(("=", "return", "(", ",")) or not before) and (
        after[:1] in ("", ")", ",", "#"))
    return text if alone else as_operand(text)


def _span(node: ast.expr | ast.stmt) -> tuple[int, int, int | None, int | None]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _holds(node: ast.AST, span: tuple[int, int, int, int]) -> bool:
    """Is a place within a node?"""
    if not isinstance(node, ast.expr | ast.stmt):
        return any(_holds(n, span) for n in ast.iter_child_nodes(node))
    line, column, end_line, end_column = _span(node)
    return (line, column) <= span[:2] and span[2:] <= (end_line, end_column)


def _bound(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The names that are bound, or of which a part is, each with its line."""
    for node in ast.walk(tree):
        if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            root = node
            while isinstance(root, ast.Attribute | ast.Subscript | ast.Starred):
                root = root.value
            if isinstance(root, ast.Name):
                yield root.lineno, root.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name


@cached(16, "syntax trees of the files whose lines are changed")
def syntax_tree(file: str, version: tuple) -> ast.Module | None:
    """The syntax tree of a file, by its version; None if it is no Python."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
