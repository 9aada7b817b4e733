"""The figures of a per-device program on chosen hardware: bytes, seconds, memory, operations."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.ops.communication.collective_kinds import each_collective
from ...ir.program import Program
from .memory import Memory, memory
from .schedule import Times, times
from .topology import Topology
from .work import Work, program_work


@dataclass(frozen=True)
class Figures:
    """One run on one device. received_bytes: of the busiest device. Times are in seconds, memory in
    bytes. work: operations and bytes through memory. held: finds the memory, which takes longest,
    when it is first asked for.
    """
    received_bytes: int
    times: Times
    work: Work
    held: Callable[[], Memory]

    @functools.cached_property
    def memory(self) -> Memory:
        return self.held()

    @property
    def time(self) -> float:
        """Seconds of a step, communication and computation overlapped."""
        return self.times.step

    @property
    def peak_bytes(self) -> int:
        return self.memory.peak_bytes

    @property
    def flops(self) -> float:
        """Operations, transcendental functions among them."""
        return self.work.operations


def figures(program: Program, topology: Topology, donated: Sequence[bool] = ()) -> Figures:
    """The figures of a LOCAL program."""
    received = sum(e.received_bytes * e.count for e in each_collective(program))
    return Figures(received, times(program, topology),
                   program_work(program, topology.hardware.keeps_rows),
                   functools.partial(memory, program, donated))
