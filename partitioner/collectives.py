"""The collectives of a per-device program: one record each, for reports, costs and tests.

Bytes are those that the busiest device receives under ring algorithms
(ir/ops/communication/collective.py says them per op); the per-device executor measures the same
(runtime/measure.py). A collective in the body of a loop counts once per iteration.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..ir.ops.communication.collective_kinds import Use, each_collective
from ..ir.program import Equation, Program
from ..ir.reasons import Alternative, Reason, reason_text
from ..ir.source.location import Location
from ..ir.support.immutable import immutable
from .reasons import kind_of, padded_share


@immutable
class CollectiveRecord:
    """A collective of a per-device program.

    kind: "all-reduce", "all-gather", "reduce-scatter", "all-to-all" or "collective-permute".
    op: the name of the operation. operand_bytes: of the local operand of one device;
    of `exchange_rows`, which sends some of its rows, those that the busiest device sends.
    mesh_axes: of the replica groups, `group_size` devices each. received_bytes: by the busiest
    device in one run. count: how often it runs, loops multiplied (1 where a loop does not say how
    often it repeats). conditional: it stands in a branch and may not run. source: the user's line,
    with `.file` and `.line`. why: the reason for which it exists, `reason` in words. parts: of one
    with several operands, a record of each, with its own bytes, line and reason.
    """
    kind: str
    op: str
    operand_bytes: int
    group_size: int
    count: int
    mesh_axes: tuple[str, ...]
    received_bytes: int
    source: Location
    why: Reason
    conditional: bool
    equation: Equation
    parts: tuple[CollectiveRecord, ...] = ()

    @property
    def reason(self) -> str:
        """Why it exists; empty if the user wrote it."""
        return reason_text(self.why)

    @property
    def reason_kind(self) -> str:
        """"asked": the user wrote the exchange or the layout. "needed": the op's rule allows no
        other way. "chosen": the partitioner preferred it to `alternative`.
        """
        return self._verdict[0]

    @property
    def alternative(self) -> Alternative | None:
        """For a chosen collective, the best plan without it."""
        return self._verdict[1]

    @property
    def _verdict(self) -> tuple[str, Alternative | None]:
        return kind_of(self.why, self.kind in ("all-reduce", "reduce-scatter"))

    @property
    def padding(self) -> float:
        """The share of the moved data that is padding of dimensions that axes do not divide."""
        return padded_share(self.why)

    @property
    def total(self) -> int:
        """Bytes received by the busiest device over all runs."""
        return self.received_bytes * self.count

    # Short names, for reports.

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes."""
        return self.mesh_axes

    @property
    def size(self) -> int:
        """Devices of a group."""
        return self.group_size

    @property
    def bytes(self) -> int:
        """Bytes received in one run."""
        return self.received_bytes

    @property
    def location(self) -> Location:
        """The user's line."""
        return self.source

    def __str__(self) -> str:
        times = f" x {self.count}" if self.count != 1 else ""
        over = ", ".join(map(str, self.mesh_axes))
        return (f"{self.kind} over {over} ({self.group_size} devices): {self.received_bytes:,} B"
                f"{times}, {self.source}" + (f", because {self.reason}" if self.why else ""))


def collectives(program: Program) -> list[CollectiveRecord]:
    """The collectives of a LOCAL program in order, those in its loops and branches included.

    Own-block slices, casts and permutations in which no block moves exchange nothing and are left
    out.
    """
    return [_record(use) for use in each_collective(program)]


def each_part(records: Iterable[CollectiveRecord]) -> Iterator[tuple[CollectiveRecord, float]]:
    """What they exchange, operand by operand, each with its share of its collective."""
    for r in records:
        for part in r.parts or (r,):
            yield part, part.received_bytes / r.received_bytes if r.received_bytes else 1.0


def _record(use: Use) -> CollectiveRecord:
    eqn = use.equation
    return CollectiveRecord(
        use.kind, eqn.op.name, use.operand_bytes, use.group_size, use.count, use.mesh_axes,
        use.received_bytes, eqn.location, eqn.reason, use.conditional, eqn,
        tuple(map(_record, use.parts)))
