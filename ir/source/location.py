"""Where in the user's source an equation comes from.

A location is captured for every equation, so capturing must cost about a microsecond: it walks
the frames to the first one outside this package and keeps the code object and the instruction
offset. File, line, columns and text are worked out only when somebody asks (an error, a dump, a
report), from `code.co_positions()` (PEP 657) and `linecache`.

A frame belongs to the package if its module is `shardtrace` or starts with `shardtrace.`; paths
are never compared, because examples and tests live under the same root as the package.
"""
from __future__ import annotations

import itertools
import linecache
import os
import stat
import sys
import threading
from types import CodeType
from typing import Any, Self

from ..support.caches import cached, module_table

PACKAGE = __name__.split(".")[0]
# Frames of these libraries stand between the user's and ours when they call back into us.
_BETWEEN = frozenset({
    PACKAGE, "contextlib", "functools", "numpy", "optree", "opt_einsum", "scipy"})


class Scopes(threading.local):
    """The names of this thread's scopes, joined by `/` (tracer/staging/name_scopes.py)."""

    path: str = ""


SCOPES = Scopes()


_COUNT = itertools.count()
_NUMBERS = module_table("ir.source.location._NUMBERS", "numbers of code, by identity", 4096)
_EQUAL = module_table("ir.source.location._EQUAL", "numbers of code, by what it is", 4096)


def code_number(code: CodeType) -> int:
    """A number that code of one file has alone, but for code that is equal: a cell of a notebook
    that is run again, a module that is loaded again."""
    found = _NUMBERS.get(id(code))
    if found is None or found[0] is not code:
        own = (code, code.co_filename, code.co_qualname)
        number = _EQUAL.get(own)
        if number is None:
            number = _EQUAL[own] = next(_COUNT)
        found = _NUMBERS[id(code)] = code, number
    return found[1]


class Callers(tuple[tuple[CodeType, int], ...]):
    """The user's frames around one of the user's, the nearest first: who called it, and where.
    Only the same are equal: to compare code takes long.
    """

    _key: tuple | None = None
    _number: int | None = None
    __hash__, __eq__ = object.__hash__, object.__eq__

    @property
    def key(self) -> tuple:
        """Equal for equal calls."""
        if self._key is None:
            self._key = tuple([(code_number(code), lasti) for code, lasti in self])
        return self._key

    @property
    def number(self) -> int:
        """A number that equal calls have alone."""
        if self._number is None:
            number = _EQUAL.get(self.key)
            if number is None:
                number = _EQUAL[self.key] = next(_COUNT)
            self._number = number
        return self._number


NO_CALLERS = Callers()


class Location:
    """A span of source text: file, line, columns (0-based) and the enclosing function.

    `transform` names the transformation that made the equation ("jvp", "transpose", "batch"),
    when the user did not write it himself; `scope` the user's own names for that part; `callers`
    are the calls by which the function was running.
    """

    __slots__ = ("_code", "_lasti", "_span", "callers", "scope", "transform")

    def __init__(self, code: CodeType | None, lasti: int = 0, scope: str = "",
                 callers: Callers = NO_CALLERS, *, span: tuple | None = None, transform: str = ""
                 ) -> None:
        self._code, self._lasti, self._span = code, lasti, span
        self.transform, self.scope, self.callers = transform, scope, callers

    @classmethod
    def at(cls, file: str, line: int, column: int = 0, end_line: int | None = None,
           end_column: int | None = None, function: str = "") -> Self:
        """A location given by its coordinates, as the parser of dumps makes them."""
        end_line = line if end_line is None else end_line
        end_column = column if end_column is None else end_column
        return cls(None, span=(file, line, column, end_line, end_column, function))

    @property
    def known(self) -> bool:
        """Does it say anything? Answered without looking into the source."""
        return self._span is None or self._span[1] > 0

    def under(self, transform: str) -> Location:
        """This location, for an equation that `transform` made out of the user's one."""
        if self.transform:
            transform = f"{transform}({self.transform})"
        return self.made_by(transform)

    def made_by(self, transform: str) -> Location:
        """This location, for an equation that `transform` alone made."""
        if type(self) is Location:
            return Location(self._code, self._lasti, self.scope, self.callers, span=self._span,
                            transform=transform)
        new = self._copy()
        new.scope, new.transform = self.scope, transform
        return new

    def within(self, scope: str) -> Location:
        """This location inside of `scope`."""
        if not scope:
            return self
        new = self._copy()
        new.scope = f"{scope}/{self.scope}" if self.scope else scope
        new.transform = self.transform
        return new

    def reached_by(self, call: Location, joined: dict[Callers, Callers]) -> Location:
        """This location, reached by a call, whose scope is around it. joined: the callers found so
        far, by those that are known here.
        """
        new = self.within(call.scope)
        callers = joined.get(self.callers)
        if self._code is call._code and self._lasti == call._lasti:      # of a function of ours
            callers = call.callers
        elif callers is None:
            own = () if call._code is None else ((call._code, call._lasti),)
            callers = joined[self.callers] = Callers(
                (*self.callers, *own, *call.callers))
        if callers:
            if new is self:
                new = self._copy()
                new.scope, new.transform = self.scope, self.transform
            new.callers = callers
        return new

    def _copy(self) -> Location:
        """This location, without its scope and transformation."""
        return Location(self._code, self._lasti, "", self.callers, span=self._span)

    @property
    def calls(self) -> tuple[Location, ...]:
        """Where the function was called, the nearest call first."""
        return tuple([Location(code, lasti) for code, lasti in self.callers])

    @property
    def passed(self) -> tuple[Location, ...]:
        """The places inside of helpers in whose stead this one is, the innermost first."""
        return ()

    @property
    def chain(self) -> tuple:
        """Equal for places that are reached by equal calls."""
        return self.callers.key

    @property
    def key(self) -> tuple:
        """Equal for equal locations."""
        return *self.place, self.transform

    @property
    def place(self) -> tuple:
        """Equal for equal places in the source and scopes, called from equal places, whatever
        transformation was there.
        """
        code, callers = self._code, self.callers
        around = callers._number if callers._number is not None else callers.number
        if code is None:
            return self._span, self.scope, around
        known = _NUMBERS.get(id(code))
        number = known[1] if known is not None and known[0] is code else code_number(code)
        return number, self._lasti, self.scope, around

    @property
    def spot(self) -> tuple:
        """Equal for equal places in the source, whoever called the function there."""
        code = self._code
        return (self._span, 0) if code is None else (code_number(code), self._lasti)

    def _resolve(self) -> tuple:
        if self._span is None:
            code = self._code
            file = "" if code is None else code.co_filename    # equal code may be of two files
            self._span = _span_of(code, self._lasti, file)
        return self._span

    @property
    def file(self) -> str:
        return self._resolve()[0]

    @property
    def line(self) -> int:
        return self._resolve()[1]

    @property
    def column(self) -> int:
        return self._resolve()[2]

    @property
    def end_line(self) -> int:
        return self._resolve()[3]

    @property
    def end_column(self) -> int:
        return self._resolve()[4]

    @property
    def function(self) -> str:
        return self._resolve()[5]

    @property
    def short_file(self) -> str:
        return os.path.basename(self.file)

    def source_line(self, line: int | None = None) -> str:
        """The text of the line (of `line`, if given), or '' where the source is not at hand."""
        return linecache.getline(self.file, self.line if line is None else line).rstrip("\n")

    def text(self) -> str:
        """The source text of the span, if it is on one line."""
        if self.line != self.end_line:
            return ""
        return self.source_line()[self.column:self.end_column]

    def to_dict(self) -> dict[str, Any]:
        """As plain data, with the text of the line; lines and columns count from 1."""
        return {"file": self.file, "line": self.line, "column": self.column + 1,
                "text": self.source_line().strip()}

    def __str__(self) -> str:
        return f"{self.short_file}:{self.line}:{self.column + 1}"

    def __repr__(self) -> str:
        return f"Location({self.file}:{self.line}:{self.column + 1})"


LARGEST_SOURCE = 1 << 24         # bytes


class ParsedLocation(Location):
    """A place that a text names. Its file is read only if it is one that the text's reader may look
    at: a regular file of moderate size, under the text's own folder or the current one.

    folder: of the text; "" where it is none.
    """

    __slots__ = ("folder",)
    folder: str

    def _copy(self) -> Location:
        new = ParsedLocation(None, span=self._span)
        new.folder = self.folder
        return new

    def source_line(self, line: int | None = None) -> str:
        return super().source_line(line) if _is_near(self.file, self.folder) else ""


def _is_near(file: str, folder: str) -> bool:
    """May the source of a file be shown? It was run in this process, or it lies in the working
    directory or beside the program, and is no huge or special file.
    """
    if len(linecache.cache.get(file, ())) > 1:       # of this process's own code
        return True
    try:
        path = os.path.realpath(file)
        status = os.stat(path)
        return stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_SOURCE and any(
            os.path.commonpath((path, root)) == root
            for root in (os.path.realpath(f) for f in (os.curdir, folder) if f))
    except (OSError, ValueError):
        return False


UNKNOWN = Location.at("<unknown>", 0)


@cached(64, "columns of the instructions of functions")
def _positions(code: CodeType, file: str) -> list[tuple]:
    return list(code.co_positions())


@cached(4096, "columns of an instruction")
def _span_of(code: CodeType, lasti: int, file: str) -> tuple:
    """(file, line, column, end line, end column, function) of an instruction, columns in
    characters.
    """
    positions, index = _positions(code, file), lasti // 2
    line, end_line, column, end_column = (
        positions[index] if index < len(positions) else (None, None, None, None))
    if line is None:
        line = end_line = code.co_firstlineno
    if column is None:
        column = end_column = 0
    source = linecache.getline(file, line)
    if source and not source.isascii():  # positions count utf-8 bytes, carets count characters
        raw = source.encode()
        column = len(raw[:column].decode(errors="ignore"))
        if end_line == line:
            end_column = len(raw[:end_column].decode(errors="ignore"))
    return (file, line, column, end_line, end_column, code.co_name)


def source_version(file: str) -> tuple:
    """Tells one text of a file from another: the size and time that `linecache` read it with."""
    if not linecache.getlines(file):
        return ()
    return tuple(linecache.cache[file][:2])


def is_between(module_name: str) -> bool:
    """Does a frame of this module stand between the user's code and an op?"""
    return module_name.partition(".")[0] in _BETWEEN


def is_ours(module_name: str) -> bool:
    """Does a frame of this module belong to the package?"""
    return module_name.partition(".")[0] == PACKAGE


class _Between(dict[str, bool]):
    """`is_between` of module names, worked out once for each: every capture asks several times."""

    def __missing__(self, name: str) -> bool:
        found = self[name] = name.partition(".")[0] in _BETWEEN
        return found


STANDS_BETWEEN = _Between()


def capture() -> Location:
    """The innermost frame that is the user's, as an unresolved location."""
    frame, between = sys._getframe(1), STANDS_BETWEEN
    while frame is not None:
        module = frame.f_globals
        if not between[module["__name__"] if "__name__" in module else ""]:
            return Location(frame.f_code, frame.f_lasti, SCOPES.path)
        frame = frame.f_back
    return UNKNOWN
