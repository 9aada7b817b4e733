"""At which size of the data the ranking of suggestions turns.

Small programs spend their time on starting kernels and exchanges. A program with k times the data
takes k times as long as the same program on a device on which each start takes a k-th of the time.
So what is best with more data is seen without tracing anything again: the program is partitioned
for such devices, with the first suggestion, with others and as it is, and the size at which another
one becomes the fastest is found by bisection.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from .suggestion import Suggestion
from .trials import Trials

LARGEST = 1000.0        # factor of the data up to which a turn is mentioned
_STEPS = 6              # of the bisection: the factor is exact to a ninth
_STARTS = 0.2           # share of a step's time that does not depend on the data, for a turn
_CLEARLY = 0.98         # of the time of the first, what another one has to take less than


def turn_of(found: Sequence[Suggestion], trials: Trials) -> tuple[float, Suggestion | None] | None:
    """The factor of the data from which the first suggestion is not the best any more, and the one
    that is then (None: the program as it is); None if there is no such factor up to `LARGEST`.

    found: suggestions for the whole program, the best first; others than the first count that take
    longer now, avoid the collective, and take not much more memory or operations.
    """
    first = found[0]
    rivals: list[Suggestion | None] = [
        s for s in found[1:] if s.time > first.time and s.removes
        and not trials.much(s.peak_bytes, s.flops)]
    if first.time < trials.base.time:
        rivals.append(None)
    if not rivals or first.estimated or trials.base.time - trials.time_with(
            (), LARGEST, trials.partitioned) < _STARTS * trials.base.time:
        return None
    if (len(rivals) + 1) * (_STEPS + 1) * trials.work > trials.budget.turns:
        return None

    def faster(factor: float, among: Sequence[Suggestion | None]) -> list[Suggestion | None]:
        """Those of them that are faster than the first with so many times the data."""
        trials.budget.turns -= (1 + len(among)) * trials.work
        most = _CLEARLY * trials.time_with(first.changes, factor)
        timed = [(trials.time_with(s.changes if s is not None else (), factor), n)
                 for n, s in enumerate(among)]
        return [among[n] for seconds, n in sorted(timed) if seconds < most]

    better = faster(LARGEST, rivals)
    if not better:
        return None
    low, high = 1.0, LARGEST
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        now = faster(middle, better)
        low, high, better = (low, middle, now) if now else (middle, high, better)
    return high, better[0]
