"""Which of the suggestions for a collective comes first: what each saves, and what that costs.

First come those that remove the collective, or next to all of it; of these, those that do not raise
memory or operations much; of these, those that are worth most: the seconds that they save, which
count less where

- the caller would gather what is not gathered any more;
- a change is not of what the collective comes from, or, where the user asked for it, of what asked;
- a value is split over axes of the mesh that the collective does not run over: that saves time in
  most programs, but is another matter than the mistake.

Of what is worth as much the least effort comes first. One change comes before several that do
little more. What leaves the collective but saves much more, in time and bytes, comes before what
removes it.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from .changes import Argument, Change, Constrain, Respec, Result, row_of, rows
from .code_changes import Rewritten
from .kinds import IDLE, Kinds
from .suggestion import Suggestion
from .trials import MUCH, Trials

_MORE = 1.3        # times what one change saves that several have to save to come before it
_FEWER = 0.15      # of the bytes that one change leaves: several that save these come before it
_PRICE = 0.05      # of a step: what much more memory or operations have to save at least
_SLIGHT = 0.1      # of a step, or of what is received, that is little
_FAR = 3           # times what those that avoid it save, to come before them without avoiding it
SAME = 1e-9        # differences of time below this part are none
ALIKE = 0.02       # of two that are as fast within this part the simpler comes first
SOME = 1.01        # times the memory or operations that count as raising them
_RAISED = 0.9      # what a second counts that is saved by raising memory or operations
_LITTLE = 0.01     # part of the bytes of a collective that is next to none of them
_INDIRECT = 0.8    # what a second counts that is saved by changing what is not behind a collective
_OTHERS = 0.25     # what it counts if a value is split over other axes
_IDLE = 0.5        # and if nothing else is split over these
_COMPUTED = 0.25   # and of it those that are saved by computing less
_KEPT = 8          # suggestions for one collective
_CALLERS = 0.9     # of the bytes that are saved: if whoever calls gathers as many, they are his;
#                    and what each second counts less that is saved so
_EFFORT = {Constrain: 3, Argument: 2, Result: 2}


class Ranking:
    """Ranks suggestions for one collective. own: the part that it is, with its like, of what is
    exchanged so at its line.
    """

    def __init__(self, trials: Trials, kinds: Kinds, own: float) -> None:
        self.trials, self.kinds, self.own = trials, kinds, own

    def harm(self, s: Suggestion) -> int:
        """Does it raise memory or operations: 0 no, 1 somewhat, 2 much? Arguments that take much
        more count somewhat: they were gathered by who passes them.
        """
        base = self.trials.base
        some = (s.peak_bytes > base.peak_bytes * SOME or s.flops > base.flops * SOME
                or s._arguments > base.memory.argument_bytes * MUCH)
        return 2 if self.trials.much(s.peak_bytes, s.flops) else int(some)

    def callers(self, s: Suggestion) -> float:
        """The part of the bytes that it saves which whoever passes the arguments gathers instead.
        """
        base = self.trials.base
        grown = s._arguments - base.memory.argument_bytes
        if grown <= base.memory.argument_bytes * (SOME - 1):
            return 0.0
        return min(1.0, grown / max(grown, base.received_bytes - s.received_bytes)) if (
            s.received_bytes < base.received_bytes) else 1.0

    def avoids(self, s: Suggestion) -> bool:
        """Does it remove the collective, or nearly, or as much as that is of what is exchanged at
        its line; and not only hand it to the caller?
        """
        return (s.removes or s._left <= 1 - self.own * (1 - _LITTLE)) and (
            self.callers(s) <= _CALLERS)

    def ranked(self, found: Sequence[Suggestion]) -> list[Suggestion]:
        """The best first; one that does nearly as much as several changes comes before them. Where
        it does without other axes, those over others are another matter.
        """
        base = self.trials.base.time
        # what takes much more for next to nothing is no suggestion
        found = [s for s in found if self.harm(s) < 2 or base - s.time >= base * _PRICE]
        found.sort(key=self.rank)
        if found:
            far = max(found, key=lambda s: self.worth(s) if not self.harm(s) else 0)
            little = base - found[0].time < base * _SLIGHT
            if self.worth(far) > (_FAR if little else 1) * max(0, self.worth(found[0])) and (
                    little or self.exchanges_more(found[0], far)):
                found.insert(0, found.pop(found.index(far)))
            # what needs no other axes and leaves next to nothing to exchange is what was meant
            bytes_ = self.trials.base.received_bytes
            if any(self.is_best(s) and s.received_bytes <= bytes_ * _SLIGHT
                   and not self.kinds.over(s.changes) for s in found):
                found = [s for s in found if not self.kinds.over(s.changes)]
        most = found[0] if found else None
        for i, s in enumerate(found):
            if most is not None and set(s.changes) < set(found[0].changes) and (
                    self.avoids(s) >= self.avoids(most)) and (alike(s, most) or (
                        self.harm(s) <= self.harm(most)
                        and (base - s.time) * _MORE >= base - most.time
                        and not self.lacks_rows(s, found))):
                found.insert(0, found.pop(i))
        if found and self.is_best(found[0]) and not self.kinds.over(found[0].changes):
            found = [s for s in found if not self.kinds.over(s.changes)]
        return found

    def lacks_rows(self, s: Suggestion, found: Sequence[Suggestion]) -> bool:
        """Does one of them change arguments besides, and leave much less to exchange?"""
        return any(set(s.changes) < set(t.changes) and self.exchanges_more(s, t)
                   and self.harm(t) <= self.harm(s)
                   and all(isinstance(c, Argument) for c in set(t.changes) - set(s.changes))
                   for t in found)

    def exchanges_more(self, s: Suggestion, other: Suggestion) -> bool:
        """Does it leave much that another one does not, of what is left and of all?"""
        more = s.received_bytes - other.received_bytes
        return (more > s.received_bytes * _FEWER
                and more > self.trials.base.received_bytes * ALIKE)

    def is_best(self, s: Suggestion) -> bool:
        """Does it remove the collective, lower the time, and raise nothing?"""
        faster = s.time < self.trials.base.time * (1 - SAME)
        return self.avoids(s) and faster and not self.harm(s)

    def worth(self, s: Suggestion) -> float:
        """The seconds that it saves, which count less where it raises memory or operations (where
        much, as the square of how many times), and for what the caller gathers instead.
        """
        base, harm = self.trials.base, self.harm(s)
        times = max(s.peak_bytes / base.peak_bytes, s.flops / max(base.flops, 1.0))
        factor = (1.0, _RAISED, times ** -2.0)[harm] * (1 - _CALLERS * self.callers(s))
        saved = base.time - s.time
        if not self.kinds.direct(s.changes):
            factor *= _INDIRECT
        if self.kinds.splits(s.changes):        # what is computed less is another matter
            saved = min(saved, max(0.0, base.times.communication - s._exchange))
        over = self.kinds.over(s.changes)
        if over:
            saved = saved + (base.time - s.time - saved) * _COMPUTED
            factor *= _IDLE if over == IDLE else _OTHERS
        return saved * factor

    def rank(self, s: Suggestion) -> tuple:
        # of equals rather what is written in the function, and less rather than more of it
        base = self.trials.base.time
        written = [row[0] for row in rows(s.changes)]
        effort = sum(_EFFORT.get(type(c), 2) if not isinstance(c, Respec)
                     else int(c.spec is not None) for c in written)
        pace = math.floor(math.log(max(base - self.worth(s), 1e-12)) / math.log1p(ALIKE))
        harm = self.harm(s)
        return (not self.avoids(s), s.time >= base * (1 - SAME), harm == 2, pace, harm, effort,
                self.kinds.size(s.changes), s.time, s.received_bytes, s.peak_bytes, len(written),
                s.text)


def without_repeats(found: Sequence[Suggestion]) -> list[Suggestion]:
    """Not two that do the same, nor a pair that does no better than one of its changes, nor what is
    like an earlier one but for taking more memory or operations, or for other specs of the same
    values that are no better in anything. What does as an earlier one, written elsewhere, comes
    behind what does something else.
    """
    kept: list[Suggestion] = []
    again: list[Suggestion] = []
    for s in found:
        if not any(set(k.changes) < set(s.changes) or _dearer(s, k) or _same_values(s, k)
                   or s.text == k.text for k in (*kept, *again)):
            (again if any(alike(s, k) for k in kept) else kept).append(s)
    return [*kept, *again][:_KEPT]


def alike(s: Suggestion, other: Suggestion) -> bool:
    """Do two save and cost the same, but for a little?"""
    return all(math.isclose(a, b, rel_tol=ALIKE) for a, b in (
        (s.time, other.time), (s.received_bytes, other.received_bytes),
        (s.peak_bytes, other.peak_bytes), (s.flops, other.flops)))


def _same_values(s: Suggestion, other: Suggestion) -> bool:
    """Does it change what the other one changes, and is better in nothing?"""
    return ({*map(target, s.changes)} == {*map(target, other.changes)}
            and s.time >= other.time and s.received_bytes >= other.received_bytes
            and s.peak_bytes >= other.peak_bytes and s.flops >= other.flops)


def _dearer(s: Suggestion, other: Suggestion) -> bool:
    price, least = (s.peak_bytes, s.flops), (other.peak_bytes, other.flops)
    return (not set(s.changes) < set(other.changes) and price != least
            and s.time >= other.time and s.received_bytes >= other.received_bytes
            and all(a >= b for a, b in zip(price, least, strict=True)))


def target(change: Change) -> tuple:
    """What a change is of: of a row of a table the row, so that no two parts of one are changed."""
    if isinstance(change, Argument | Result):
        return (type(change).__name__, row_of(change.name) or change.index)
    return ("inside", change.at if isinstance(change, Rewritten) else change.places)
