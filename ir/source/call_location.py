"""Locations of layout requests that are made through a helper function.

Programs wrap `with_sharding_constraint` and `reshard` in a helper of one line that is called
everywhere. The line of the helper says nothing; the line that calls it does. Such a location keeps
the frames around the innermost one, and stands for the first that does more than return a call on
one of its own parameters. Which one that is, is worked out from the syntax tree of the file when
the location is asked for.
"""
from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from types import CodeType

from ..support.caches import cached
from .location import (
    SCOPES,
    STANDS_BETWEEN,
    UNKNOWN,
    Location,
    code_number,
    source_version,
)

_FRAMES = 4         # frames that are kept


class CallLocation(Location):
    """A location that is the caller's where the innermost function only passes a value on.

    >>> def kept(x, spec):
    ...     return capture_call()
    >>> isinstance(kept(1, None), CallLocation)
    True
    """

    __slots__ = ("_outer", "_passed")

    def __init__(self, frames: list[tuple[CodeType, int]], scope: str = "") -> None:
        super().__init__(*frames[0], scope)
        self._outer, self._passed = frames[1:], 0

    @property
    def place(self) -> tuple:
        return (*super().place, *[(code_number(code), lasti) for code, lasti in self._outer])

    def _resolve(self) -> tuple:
        if self._span is None:
            for n, (code, lasti) in enumerate([(self._code, self._lasti), *self._outer]):
                found = Location(code, lasti)._resolve()
                if self._span is None or found[1]:
                    self._span, self._passed = found, n
                if found[1:5] not in _passing(found[0], source_version(found[0])):
                    break
        return self._span

    def _copy(self) -> Location:
        new = CallLocation([(self._code, self._lasti), *self._outer])  # type: ignore[list-item]
        new._span, new._passed, new.callers = self._span, self._passed, self.callers
        return new

    @property
    def spot(self) -> tuple:
        self._resolve()
        if not self._passed:
            return super().spot
        code, lasti = self._outer[self._passed - 1]
        return code_number(code), lasti

    @property
    def passed(self) -> tuple[Location, ...]:
        self._resolve()
        frames = (self._code, self._lasti), *self._outer
        return tuple([Location(code, lasti) for code, lasti in frames[:self._passed]])

    @property
    def calls(self) -> tuple[Location, ...]:
        self._resolve()
        return super().calls[self._passed:]

    @property
    def chain(self) -> tuple:
        self._resolve()
        return super().chain[self._passed:]


def capture_call() -> Location:
    """The innermost frames that are the user's, as a location that is not resolved yet."""
    frame, between = sys._getframe(1), STANDS_BETWEEN
    found: list[tuple[CodeType, int]] = []
    while frame is not None:
        module = frame.f_globals
        if not between[module["__name__"] if "__name__" in module else ""]:
            found.append((frame.f_code, frame.f_lasti))
            if len(found) == _FRAMES:
                break
        frame = frame.f_back
    return CallLocation(found, SCOPES.path) if found else UNKNOWN


@cached(256)
def _passing(file: str, version: tuple) -> frozenset[tuple]:
    """Spans of the calls in a file that a function returns as they are, given a parameter of its.
    """
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return frozenset()
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            continue
        a = node.args
        given = {p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if p}
        for value in _returned(node):
            if isinstance(value, ast.Call) and any(
                    isinstance(x, ast.Name) and x.id in given for x in value.args):
                found.add((value.lineno, value.col_offset, value.end_lineno,
                           value.end_col_offset))
    return frozenset(found)


def _returned(function: ast.FunctionDef | ast.Lambda) -> Iterator[ast.expr]:
    """The expressions that a function may return, where it does nothing else to a value."""
    if isinstance(function, ast.Lambda):
        values = [function.body]
    else:
        kinds = (ast.Return, ast.If, ast.Expr, ast.Raise, ast.Import, ast.ImportFrom)
        if not all(isinstance(s, kinds) or _names_a_sharding(s) for s in function.body):
            return
        values = [s.value for s in ast.walk(function) if isinstance(s, ast.Return) and s.value]
    for value in values:
        yield from (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)


def _names_a_sharding(statement: ast.stmt) -> bool:
    """`sharding = NamedSharding(mesh, P(*spec))`: an assignment that makes no array."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return False
    called = statement.value.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in ("NamedSharding", "PartitionSpec", "P")
