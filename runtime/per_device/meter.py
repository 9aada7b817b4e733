"""What devices receive from each other, counted where it happens.

In the per-device executor a device reads another's buffer through `Wire.receive` and nowhere else.
It copies, and counts the bytes at the width of the declared dtype. So the meter is measured, and
the formulas that the cost report uses can be checked against it.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...ir.program import Equation


@dataclass
class Traffic:
    """What one use of a collective moved: bytes received by each device, in mesh order."""
    eqn: Equation
    received: np.ndarray


@dataclass
class Meter:
    """The traffic of one run, in order of execution."""
    devices: int
    traffic: list[Traffic] = field(default_factory=list)

    @property
    def busiest(self) -> int:
        """Bytes received by the device that receives most."""
        if not self.traffic:
            return 0
        return int(np.sum([t.received for t in self.traffic], axis=0).max())

    def sums(self) -> dict[Equation, np.ndarray]:
        """For each equation that exchanged the bytes that each device received, in all its runs."""
        found: dict[Equation, np.ndarray] = {}
        for t in self.traffic:
            found[t.eqn] = found[t.eqn] + t.received if t.eqn in found else t.received
        return found


class Wire:
    """The connection between devices during one equation."""

    __slots__ = ("itemsize", "received")

    def __init__(self, devices: int, itemsize: int) -> None:
        self.received = np.zeros(devices, np.int64)
        self.itemsize = itemsize

    def receive(self, to: int, source: int, data: np.ndarray) -> np.ndarray:
        """What device `to` gets when `source` sends it `data`: a copy of its own."""
        if to != source:
            self.received[to] += data.size * self.itemsize
        return np.array(data)

    def even_out(self, group: Sequence[int]) -> None:
        """Let every device of a group count for the mean of the group.

        A block that the ring cannot cut evenly leaves some devices a chunk ahead of others; which
        ones depends on where the ring begins, and that moves on from one exchange to the next.
        """
        members = list(group)
        self.received[members] = self.received[members].sum() // len(members)
