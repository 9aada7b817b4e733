"""Charges the cost of a program's collectives to the values responsible for them.

Each collective's seconds are charged to the annotated values from which its axes come, and to
whatever pins a value's layout. A wrong row in a table of specs causes exchanges in every layer; a
right one causes the sums that its products need, which count less because any layout has some. So a
promising change can be recognised without trying it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ....ir.reasons import NEEDED
from ....ir.source.location import Location
from ....partitioner.collectives import CollectiveRecord
from ...reasons.causes import Cause

_NEEDED = 0.5        # weight of a collective that no way of running its operation avoids
_BETWEEN = 0.25      # weight of a value that only passes an axis on


class Charges:
    """Seconds charged to (value, as numbered in propagation; mesh axis). annotated: (place, value
    there) to the annotated value that its layout comes from.
    """

    def __init__(self, explained: Iterable[tuple[CollectiveRecord, Cause, float]],
                 annotated: Callable[[Location, int], int]) -> None:
        self.seconds: dict[tuple[int, str], float] = {}
        for record, cause, seconds in explained:
            axes = {str(a).partition(":")[0] for a in record.mesh_axes}
            part = seconds * (_NEEDED if cause.kind == NEEDED else 1)
            shares: dict[tuple[int, str], float] = {}
            for path in cause.paths:
                axis = path.axis.partition(":")[0]
                if axis in axes and path.tensors:
                    *between, root = path.tensors
                    for t in between:
                        shares.setdefault((t, axis), _BETWEEN)
                    shares[annotated(path.root_location, root), axis] = 1.0
            for hold in cause.holds:
                held = annotated(hold.root_location, hold.tensor)
                shares.update({(held, axis): 1.0 for axis in axes})
            for key, share in shares.items():
                self.seconds[key] = self.seconds.get(key, 0.0) + share * part

    def of(self, tensors: Sequence[int], axes: Sequence[str]) -> float:
        """The charges of these values for collectives over these axes."""
        return sum(self.seconds.get((t, axis), 0.0) for t in tensors for axis in axes)
