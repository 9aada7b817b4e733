"""The user's expression that is being evaluated, as a syntax tree that can be edited.

An error should say what the user could have written instead. `current_place()` finds the innermost
frame outside the package and the expression under its instruction pointer; `operands()` are its
subexpressions that may be arrays, and `Place.edited()` is its text with some of them replaced.
`is_pure` tells which expressions have no effects and may therefore be evaluated a second time.
"""
from __future__ import annotations

import ast
import inspect
import linecache
import sys
import types
from collections.abc import Mapping
from typing import Any

from ...ir.diagnostics.diagnostic import Fix
from ...ir.settings.context import STATE
from ...ir.source.location import PACKAGE, is_between
from ...ir.support.caches import cached
from ...ir.support.immutable import immutable
from ...ir.support.named_tuple import NamedTuple
from ...ir.values.array import Array
from ..staging.builder import Builder

_BUILTINS = (tuple, list, len, range, slice, int, float, bool, abs, min, max, sum, sorted, reversed)
_PURE_NODES = (ast.Constant, ast.Slice, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BinOp,
               ast.UnaryOp, ast.Compare, ast.AugAssign, ast.Starred, ast.keyword, ast.operator,
               ast.unaryop, ast.cmpop, ast.expr_context, ast.JoinedStr, ast.FormattedValue)
_MISSING = object()
_EAGER = f"{PACKAGE}.driver.execution.eager"       # traces what runs at once
_LONG = 12            # lines of a statement that are shown


@immutable
class Place:
    """An expression of the user's source, in the frame that is evaluating it.

    lines: of the file, without line ends. `AugAssign` statements stand for their operator.
    is_eager: whether ops run as the frame reaches them, in no trace.
    """
    frame: types.FrameType
    node: ast.expr | ast.AugAssign
    file: str
    lines: tuple[str, ...]
    parents: Mapping[ast.AST, ast.AST]
    is_eager: bool

    def scope(self) -> dict[str, Any]:
        """The names that can be used in the expression, local ones first."""
        code, found = self.frame.f_code, self.frame.f_locals
        unset = {*code.co_varnames, *code.co_cellvars} if self.frame.f_globals is not found else {}
        return {**found, **{name: value for name, value in self.frame.f_globals.items()
                            if name not in found and name not in unset}}

    def lookup(self, name: str) -> Any:
        """The value of a name in the expression; `_MISSING` if there is none."""
        for scope in (self.frame.f_locals, self.frame.f_globals, self.frame.f_builtins):
            if name in scope:
                return scope[name]
        return _MISSING

    def text(self, node: ast.AST) -> str:
        """The source of a part of the expression."""
        return self.edited(node, {})

    def edited(self, node: ast.AST, replaced: Mapping[ast.AST, str]) -> str:
        """The source of `node` with the parts in `replaced` (disjoint) written as given."""
        offset, end = self._offsets(node)
        source = "\n".join(self.lines)
        out = []
        for part, text in sorted(replaced.items(), key=lambda item: self._offsets(item[0])):
            start, stop = self._offsets(part)
            out += [source[offset:start], text]
            offset = stop
        return "".join([*out, source[offset:end]])

    # -- changes -------------------------------------------------------------------------------
    def fix(self, node: Any, text: str, imports: tuple[str, ...]) -> Fix:
        """The change of the file that replaces a part of it by `text`."""
        start = self._column(node.lineno, node.col_offset)
        end = self._column(node.end_lineno, node.end_col_offset)
        return Fix(self.file, node.lineno, start, node.end_lineno, end, text, imports)

    def printed(self, fix: Fix, node: ast.AST, what: str) -> str:
        """What the change does, its imports, and the lines as they are then."""
        first, last = self.region(node)
        here = self.node.lineno
        lines = f"line {first}" if first == last else f"lines {first}-{last}"
        where = "" if first == last == here else f", {lines}"
        return f"{what}{where}:\n{fix.shown(self.lines, first, last)}"

    def region(self, node: ast.AST | None = None) -> tuple[int, int]:
        """The first and the last line of the statement around a part of the file, or of its head
        where others stand in it; of the part alone where that is long.
        """
        part: Any = self.node if node is None else node
        statement = self._statement(part)
        first, last = statement.lineno, statement.end_lineno
        if hasattr(statement, "body"):
            first = min(first, part.lineno)
            if part.end_lineno < statement.lineno:                   # a decorator
                last = part.end_lineno
            elif statement.body[0].lineno > statement.lineno:
                last = max(part.end_lineno, *(
                    child.end_lineno for child in ast.walk(statement)
                    if isinstance(child, ast.expr)
                    and child.end_lineno < statement.body[0].lineno), statement.lineno)
        if last - first >= _LONG:
            first, last = part.lineno, part.end_lineno
        return first, last

    def _statement(self, part: ast.AST) -> Any:
        while not isinstance(part, ast.stmt):
            part = self.parents[part]
        return part

    def _column(self, line: int, column: int) -> int:
        text = self.lines[line - 1]
        return column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))

    def _offsets(self, node: Any) -> tuple[int, int]:
        return (self._offset(node.lineno, node.col_offset),
                self._offset(node.end_lineno, node.end_col_offset))

    def _offset(self, line: int, column: int) -> int:
        return sum(len(text) + 1 for text in self.lines[:line - 1]) + self._column(line, column)


def current_place() -> Place | None:
    """Where the user's code is now; None where its source is not at hand."""
    frame: types.FrameType | None = sys._getframe(1)
    is_eager = not isinstance(STATE.interpreter, Builder) or STATE.interpreter.is_eager
    while frame is not None and is_between(module := frame.f_globals.get("__name__", "")):
        is_eager = is_eager or module == _EAGER
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    spans = list(code.co_positions())
    line, end_line, column, end_column = spans[frame.f_lasti // 2]
    source = _parsed(code.co_filename, linecache.getline(code.co_filename, line or 0))
    node = source.expressions.get((line, column, end_line, end_column))
    if node is None:
        return None
    return Place(frame, node, code.co_filename, source.lines, source.parents, is_eager)


class _Source(NamedTuple):
    """A file's lines, its expressions by span (line, column, end line, end column), and parents."""
    lines: tuple[str, ...]
    expressions: dict[tuple, Any]
    parents: dict[ast.AST, ast.AST]


_SLOTS = (types.MemberDescriptorType, type(vars(_Source)["lines"]))    # where fields are kept


@cached(64)
def _parsed(file: str, _line: str) -> _Source:
    """The syntax of a file (`_line` renews the entry of a file that was edited)."""
    lines = tuple(text.rstrip("\n") for text in linecache.getlines(file))
    source = _Source(lines, {}, {})
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError):
        return source
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.AugAssign)):
            span = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
            source.expressions[span] = node
        for child in ast.iter_child_nodes(node):
            source.parents[child] = node
    return source


def enclosing(place: Place) -> list[ast.AST]:
    """The expression and those that it is a part of and that may be evaluated again, widest first.

    A function's body, a branch or a comprehension ends the climb.
    """
    found: list[ast.AST] = [place.node]
    node: ast.AST | None = place.parents.get(place.node)
    while isinstance(node, (ast.expr, ast.keyword)):
        if isinstance(node, ast.expr):
            if not is_pure(node, place):
                break
            found.append(node)
        node = place.parents.get(node)
    return found[::-1]


def operands(place: Place) -> list[ast.expr]:
    """The parts of the expression that may be arrays which it works on."""
    node = place.node
    if isinstance(node, ast.AugAssign):
        return [node.value]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Subscript):
        return [node.value, *_flat(node.slice)]
    if isinstance(node, ast.Call):
        found: list[ast.expr] = []
        if isinstance(node.func, ast.Attribute):
            found += _receiver(node.func.value)
        for argument in (*node.args, *(k.value for k in node.keywords)):
            found += _flat(argument)
        return found
    if isinstance(node, ast.Attribute):
        return [node.value]
    return []


def _receiver(node: ast.expr) -> list[ast.expr]:
    """What a method is called on; for `x.at[i].set`, both `x` and `i`."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) \
            and node.value.attr == "at":
        return [node.value.value, *_flat(node.slice)]
    return [node]


def _flat(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List)):
        return [x for item in node.elts for x in _flat(item)]
    return [node]


def is_pure(node: ast.AST, place: Place, bodies: bool = False) -> bool:
    """May this be evaluated again? It is made of names, operators, functions of this package and
    of numpy, and methods of arrays. bodies: and of functions of the user's that they trace, which
    they have done before."""
    if isinstance(node, ast.Name):
        value = place.lookup(node.id)
        return _is_harmless(value) or bodies and inspect.isfunction(value)
    if isinstance(node, ast.Lambda):
        return bodies
    if isinstance(node, ast.Attribute):
        value = _resolve(node, place)
        if value is not _MISSING:
            return _is_harmless(value)
        value = _field(node, place)
        if value is not _MISSING:
            return _is_harmless(value)
        return hasattr(Array, node.attr) and is_pure(node.value, place)
    if isinstance(node, ast.Subscript):
        return is_pure(node.value, place) and is_pure(node.slice, place)
    if isinstance(node, ast.Call):
        function = _resolve(node.func, place)
        if function is _MISSING:
            if not (isinstance(node.func, ast.Attribute) and is_pure(node.func, place)
                    or is_update(node.func) and is_pure(node.func.value, place)):  # type: ignore
                return False
        elif not _is_own_function(function) and function not in _BUILTINS:
            return False
        return all(is_pure(a, place, bodies) for a in (*node.args, *node.keywords))
    return isinstance(node, _PURE_NODES) and all(
        is_pure(child, place, bodies) for child in ast.iter_child_nodes(node))


def is_update(node: ast.AST) -> bool:
    """`x.at[i].set` and its like."""
    return (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Subscript)
            and isinstance(node.value.value, ast.Attribute) and node.value.value.attr == "at")


def _resolve(node: ast.AST, place: Place) -> Any:
    """The value of a name, or of an attribute of a module or class; `_MISSING` for all else."""
    if isinstance(node, ast.Name):
        return place.lookup(node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolve(node.value, place)
        if isinstance(owner, (types.ModuleType, type)):
            return getattr(owner, node.attr, _MISSING)
    return _MISSING


def _field(node: ast.AST, place: Place) -> Any:
    """The value of a name, or of a field of its value, where reading it runs no user code; else
    `_MISSING`.
    """
    if isinstance(node, ast.Name):
        return place.lookup(node.id)
    if not isinstance(node, ast.Attribute):
        return _MISSING
    owner = _field(node.value, place)
    if owner is _MISSING or inspect.isfunction(type(owner).__getattribute__):
        return _MISSING
    kept = inspect.getattr_static(owner, node.attr, _MISSING)
    if isinstance(kept, _SLOTS):
        return getattr(owner, node.attr, _MISSING)
    return _MISSING if hasattr(type(kept), "__get__") else kept


def _is_own_function(value: Any) -> bool:
    if isinstance(value, type):
        return value.__module__.partition(".")[0] in (PACKAGE, "numpy")
    if not (inspect.isroutine(value) or type(value).__name__ == "ufunc"):
        return False
    module = getattr(value, "__module__", None) or "numpy"
    return module.partition(".")[0] in (PACKAGE, "numpy")


def _is_harmless(value: Any) -> bool:
    """Whether using a value has no effect: it is data, or a function of this package."""
    if value is _MISSING:
        return False
    if callable(value) and not isinstance(value, (type, Array)):
        return _is_own_function(value)
    return True


def resolved_function(place: Place) -> Any:
    """The function that a call expression calls, None where that is not plain to see."""
    node = place.node
    if not isinstance(node, ast.Call):
        return None
    value = _resolve(node.func, place)
    if value is _MISSING and isinstance(node.func, ast.Attribute):
        value = getattr(Array, node.func.attr, _MISSING)
    return None if value is _MISSING or not callable(value) else value
