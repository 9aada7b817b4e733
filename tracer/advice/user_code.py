"""The expression of the user's that is being evaluated, as a syntax tree that can be edited.

An error wants to say what the user could have written instead. `current_place()` finds the
innermost frame that is not the package's and the expression under its instruction pointer;
`operands()` are the parts of it that may be arrays, and `Place.edited()` is its text with some
parts replaced. `is_pure` says which expressions may be evaluated a second time: those that can have
no effect.
"""
from __future__ import annotations

import ast
import inspect
import linecache
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from ...ir.array import Array
from ...ir.caches import cached
from ...ir.immutable import immutable
from ...ir.location import PACKAGE, is_between
from ...ir.named_tuple import NamedTuple

_BUILTINS = (tuple, list, len, range, slice, int, float, bool, abs, min, max, sum, sorted, reversed)
_PURE_NODES = (ast.Constant, ast.Slice, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BinOp,
               ast.UnaryOp, ast.Compare, ast.AugAssign, ast.Starred, ast.keyword, ast.operator,
               ast.unaryop, ast.cmpop, ast.expr_context, ast.JoinedStr, ast.FormattedValue)
_MISSING = object()


@immutable
class Place:
    """An expression of the user's source, in the frame that is evaluating it.

    lines: of the file, without line ends. `AugAssign` statements stand for their operator.
    """
    frame: types.FrameType
    node: ast.expr | ast.AugAssign
    file: str
    lines: tuple[str, ...]
    parents: Mapping[ast.AST, ast.AST]

    def names(self) -> Iterator[tuple[str, Any]]:
        """Names that can be used in the expression, local ones first."""
        yield from self.frame.f_locals.items()
        yield from self.frame.f_globals.items()

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

    def _offsets(self, node: Any) -> tuple[int, int]:
        return (self._offset(node.lineno, node.col_offset),
                self._offset(node.end_lineno, node.end_col_offset))

    def _offset(self, line: int, column: int) -> int:
        before = sum(len(text) + 1 for text in self.lines[:line - 1])
        text = self.lines[line - 1]
        if not text.isascii():
            column = len(text.encode()[:column].decode(errors="ignore"))
        return before + column


def current_place() -> Place | None:
    """Where the user's code is now; None where its source is not at hand."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and is_between(frame.f_globals.get("__name__", "")):
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
    return Place(frame, node, code.co_filename, source.lines, source.parents)


class _Source(NamedTuple):
    """A file's lines, its expressions by span (line, column, end line, end column), and parents."""
    lines: tuple[str, ...]
    expressions: dict[tuple, Any]
    parents: dict[ast.AST, ast.AST]


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


def is_pure(node: ast.AST, place: Place) -> bool:
    """May this be evaluated again? It is made of names, operators, functions of this package and
    of numpy, and methods of arrays."""
    if isinstance(node, ast.Name):
        return _is_harmless(place.lookup(node.id))
    if isinstance(node, ast.Attribute):
        value = _resolve(node, place)
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
        return all(is_pure(a, place) for a in (*node.args, *node.keywords))
    return isinstance(node, _PURE_NODES) and all(
        is_pure(child, place) for child in ast.iter_child_nodes(node))


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
