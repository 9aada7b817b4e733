"""Which calls distinguish the values of a helper function.

`def dense(x, w): return x @ w` is one line, but computes a value for every call. Of such a value
the report also names the calls that distinguish it from others of the same line. Calls that all of
them share, and lines that only one call runs, need no mention.
"""
from __future__ import annotations

import copy
from collections.abc import Collection

from ...ir.program import Program
from ...ir.source.location import Location
from .value_paths import equations


class Calls:
    """The calls by which the equations of a program were reached. file: where the reader is: lines
    of other files are said with theirs.
    """

    def __init__(self, program: Program | None = None) -> None:
        self.file = ""
        self.chains: dict[tuple, set[tuple]] = {}        # of each place, the calls that lead there
        for eqn in equations(program) if program is not None else ():
            at = eqn.location
            self.chains.setdefault(at.spot, set()).add(at.chain)

    def of(self, at: Location) -> tuple[Location, ...]:
        """The calls to tell of, the nearest first."""
        own, found = at.chain, []
        candidates = self.chains.get(at.spot, ())
        for n, call in enumerate(own):
            # a shorter one is what a transformation makes of the same
            same = [c for c in candidates if c[n:n + 1] in ((), (call,))]
            if len(same) < len(candidates):
                found.append(at.calls[n])
            candidates = same
        return tuple(found)

    def beside(self, at: Location) -> Calls:
        """The same for what is read beside a place."""
        found = copy.copy(self)
        found.file = at.file
        return found

    def line(self, at: Location) -> str:
        """The line of a place in words: "line 11", or "line 11, called at line 26 of train.py"."""
        lines = [self.own_line(call) for call in self.of(at)]
        return ", called at ".join(dict.fromkeys([self.own_line(at), *lines]))

    def own_line(self, at: Location) -> str:
        """The line of a place in words, without calls."""
        return line_of(at, (self.file or at.file,))


def line_of(at: Location, files: Collection[str]) -> str:
    """A line in words, for a reader of these files: of several, or of another one, with its file.
    """
    return f"line {at.line}" if {*files} == {at.file} else f"line {at.line} of {at.short_file}"


NO_CALLS = Calls()
