"""Factors: what the dimensions of a rule consist of, and what an op does along each."""
from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

Split = str | tuple[str, ...]    # factors of a dimension by name: one, or a tuple of other than one
Kind = tuple[str, str, bool, tuple[Any, ...]]      # kind, operator, blocked, and the halo's window

PASS, REDUCE, HALO, REPLICATE, SCAN, INDEXED, ORDERED = (
    "pass", "reduce", "halo", "replicate", "scan", "indexed", "ordered")
KINDS = (PASS, REDUCE, HALO, REPLICATE, SCAN, INDEXED, ORDERED)
_SPLITTABLE = frozenset((
    (INDEXED, "sum"), (INDEXED, "own"), (ORDERED, "top"), (ORDERED, "columns")))
REDUCERS = ("sum", "max", "min", "prod", "and", "or", "xor", "argmax", "argmin")


class Factor:
    """One factor: its name, size, kind, and for reductions and scans the combining operator.

    blocked: sharding must not flow along it, whatever its kind.
    offset, reach, stride, valid: of a halo factor; result position p (of a factor that is summed,
    position p of the kernel) reads `reach` source rows from p * stride + offset on, of which only
    rows valid[0] to valid[1] (not included) matter (None: all; operator "ring": the first row
    follows on the last). Without a reach there is no exchange of this form, and the factor may not
    stay split, but where the operator says how: "mirror" for blocks that change places, "joined"
    for operands one after the other.
    spread: source rows lie so far apart, with nothing in between.

    What follows from these: splittable, whether the local op may run with this factor sharded, its
    emitter or a reduction doing the rest (a scan exchanges totals, `indexed(sum)` leaves a pending
    sum of what each device owns, in `indexed(own)` each writes what it owns, `ordered(top)` merges
    the best of each block, `ordered(columns)` sorts blocks as columns); leaves_sum, whether the
    result is a pending sum over the axes of this factor; reducer, the monoid of the reduction that
    a split leaves to be done at once, "" for none.
    """

    __slots__ = (
        "blocked", "kind", "leaves_sum", "name", "offset", "operator", "reach", "reducer", "size",
        "splittable", "spread", "stride", "valid")

    def __init__(self, name: str, size: int, kind: str = PASS, operator: str = "",
                 blocked: bool = False, offset: int = 0, reach: int = 0, stride: int = 1,
                 valid: tuple[int, int] | None = None, spread: int = 1) -> None:
        self.name, self.size, self.kind, self.operator = name, size, kind, operator
        self.blocked, self.offset, self.reach = blocked, offset, reach
        self.stride, self.valid, self.spread = stride, valid, spread
        self.splittable = (
            kind in (PASS, SCAN, REDUCE)
            or (kind == HALO and (reach > 0 or operator in ("mirror", "joined")))
            or (kind, operator) in _SPLITTABLE)
        self.leaves_sum = operator == "sum" and kind in (REDUCE, INDEXED)
        bare = kind == REDUCE and operator not in ("sum", "argmax", "argmin")
        self.reducer = operator if bare else ""

    def __eq__(self, other: object) -> bool:
        return _of_factor(self) == _of_factor(other) if type(other) is Factor else NotImplemented

    def __hash__(self) -> int:
        return hash(_of_factor(self))

    def __repr__(self) -> str:
        return fields_text(self, _FACTOR)

    def splittable_over(self, devices: int) -> bool:
        """May the local op run with the factor over so many devices, as far as its size matters?

        Columns must be long enough (ops/communication/column_sort.py).
        """
        if self.operator != "columns":
            return self.splittable
        rows, rest = divmod(self.size, devices)
        return not rest and not rows % devices and rows >= 2 * (devices - 1) ** 2


_FACTOR = ("name", "size", "kind", "operator", "blocked", "offset", "reach", "stride", "valid",
           "spread")

_of_factor = attrgetter(*_FACTOR)


def fields_text(value: object, names: Iterable[str]) -> str:
    fields = ", ".join(f"{name}={getattr(value, name)!r}" for name in names)
    return f"{type(value).__name__}({fields})"
