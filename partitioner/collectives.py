"""What a per-device program moves: one record per collective, for reports, costs and tests.

Bytes are those that each device receives under ring algorithms (ir/ops/collective.py says them per
op). A collective in the body of a scan counts once per iteration.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.location import Location
from ..ir.program import Equation, Program
from .moves import group_size


@dataclass(frozen=True)
class CollectiveRecord:
    """op: its name. axes: of the replica groups, `size` devices each. bytes: received by each
    device in one run of the equation; count: how often it runs (1 where that is not known).
    """
    op: str
    axes: tuple[str, ...]
    size: int
    bytes: int
    count: int
    location: Location
    reason: str
    equation: Equation

    @property
    def total(self) -> int:
        """Bytes received per device over all runs."""
        return self.bytes * self.count


def collectives(program: Program) -> list[CollectiveRecord]:
    """The collectives of a LOCAL program in order, those in its loops and branches included.

    Own-block slices and casts exchange nothing and are left out.
    """
    return list(_records(program, 1))


def _records(program: Program, count: int) -> Iterator[CollectiveRecord]:
    for eqn in program.eqns:
        exchange = eqn.op.collective
        if exchange is not None and eqn.op.name not in ("all_slice", "assume_invarying"):
            axes = exchange.axes(eqn.params)
            size = group_size(program.mesh, axes)
            received = sum(exchange.wire(a.aval, size, eqn.params) for a in eqn.invars)
            yield CollectiveRecord(eqn.op.name, axes, size, received, count, eqn.location,
                                   eqn.reason, eqn)
        for name in eqn.op.subprograms:
            held = eqn.params[name]
            trips = count * int(eqn.params.get("length", 1) or 1)
            for inner in held if isinstance(held, tuple) else (held,):
                yield from _records(inner, trips)


def bytes_received(program: Program) -> int:
    """Bytes that each device receives in one run of a LOCAL program."""
    return sum(record.total for record in collectives(program))
