"""Which calls tell the values of a helper function apart.

`def dense(x, w): return x @ w` is one line, and as many values as it is called for. Of such a line
the calls are told, too, by which its value differs from others of that line; those that all have in
common, and lines that are run by one call only, say nothing.
"""
from __future__ import annotations

from ...ir.program import Program
from ...ir.source.location import Location
from .value_paths import equations


class Calls:
    """The calls by which the equations of a program were reached."""

    def __init__(self, program: Program | None = None) -> None:
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

    def line(self, at: Location) -> str:
        """The line of a place in words: "line 11", or "line 11, called at line 26"."""
        lines = [f"line {call.line}" for call in self.of(at) if call.line != at.line]
        return ", called at ".join([f"line {at.line}", *dict.fromkeys(lines)])


NO_CALLS = Calls()
