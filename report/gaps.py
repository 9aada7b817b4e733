"""Lower bounds compared with what a program moves: by change of layout, by operation, in total.

A change of layout receives at least the elements that a device lacks (bounds.py). An operation
along a dimension need not have all of it on a device: a running sum needs the total of what
precedes a block, which is one slice of it, not the blocks themselves.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.program import Equation, Var
from ..ir.rules.factor import SCAN
from ..ir.source.location import Location
from ..partitioner.cost.kinds import info_of
from .explained_collective import ExplainedCollective
from .words import quantity


@dataclass(frozen=True)
class Gap:
    """What an operation or change of layout makes a device receive over all its runs, and the least
    that would do. op: "all-gather" and such for an exchange that the user wrote.
    """
    op: str
    source: Location
    received_bytes: int
    lower_bound: int

    @property
    def factor(self) -> float:
        """Received bytes over the least; infinite if nothing would have to move."""
        if not self.received_bytes:
            return 1.0
        return self.received_bytes / self.lower_bound if self.lower_bound else float("inf")

    def to_dict(self) -> dict[str, Any]:
        return {"op": self.op, "file": self.source.file, "line": self.source.line,
                "received_bytes": self.received_bytes, "lower_bound": self.lower_bound}

    def __str__(self) -> str:
        times = f"{self.factor:.3g}x over the bound" if self.lower_bound else "no byte need move"
        moved = quantity(self.received_bytes, "B")
        return f"`{self.op}` line {self.source.line}: {times} ({moved})"


def gaps(collectives: Sequence[ExplainedCollective]) -> list[Gap]:
    """By operation, those furthest above their bound first, in bytes."""
    groups: dict[int, list[ExplainedCollective]] = {}
    for c in collectives:
        groups.setdefault(id(c.cause.equation or c.cause.move or c), []).append(c)
    found = []
    for group in groups.values():
        eqn = group[0].cause.equation
        received = sum(c.total_bytes for c in group)
        moves: dict[int, int] = {}
        for c in group:
            key = id(c.cause.move or c)
            moves[key] = max(moves.get(key, 0), c.lower_bound * c.count)
        bound = sum(moves.values())
        own = operation_bound(eqn, group) if eqn is not None else None
        if own is not None:
            bound = min(bound, own * group[0].count)
        op = eqn.op.name if eqn is not None else group[0].kind
        found.append(Gap(op, group[0].source, received, min(bound, received)))
    return sorted(found, key=lambda g: (g.lower_bound - g.received_bytes, g.source.line))


def operation_bound(eqn: Equation, group: Sequence[ExplainedCollective]) -> int | None:
    """The least bytes for a running operation along a split dimension: a slice of each operand."""
    if eqn.op.subprograms:              # operands of a loop or branch
        return None
    info = info_of(eqn)
    along = [f for f, factor in enumerate(info.factors) if factor.kind == SCAN]
    if not along:
        return None
    dims = {d for place in info.places[:info.operands] for f, d, _ in place if f in along}
    if len(dims) != 1:
        return None
    (dim,) = dims
    total = 0
    for c in group:
        source = (c.cause.move or eqn).invars[0]
        if not isinstance(source, Var) or not source.aval.entries[dim]:
            return None
        total += source.aval.local_nbytes // max(1, source.aval.local_shape()[dim])
    return total
