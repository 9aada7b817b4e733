"""What carries messages between devices, and what they received, counted where it happens.

In the per-device executor a device reads another's buffer only as what arrives in a round
(exchanges.py). A wire carries rounds; the one here copies, since all devices are in this process,
and counts the bytes at the width of the declared dtype. So the meter is measured, and the formulas
that the cost report uses can be checked against it.
"""
from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ...ir.program import Equation

Pair = tuple[int, int]
Arrived = dict[Pair, list[np.ndarray]]
"""By (source, to) what a device got from another (or itself), in the order in which it was sent."""


class Round:
    """Messages that are on their way at the same time.

    sent: arrays by (source, to), of the sources that are here. wanted: shapes and dtypes of what
    devices that are here wait for; no dtype where all of the exchange have one.
    """

    __slots__ = ("sent", "wanted")

    def __init__(self) -> None:
        self.sent: dict[Pair, list[np.ndarray]] = {}
        self.wanted: dict[Pair, list[tuple[tuple[int, ...], Any]]] = {}

    def send(self, source: int, to: int, data: np.ndarray) -> None:
        self.sent.setdefault((source, to), []).append(data)

    def want(self, source: int, to: int, shape: tuple[int, ...], dtype: Any = None) -> None:
        self.wanted.setdefault((source, to), []).append((shape, dtype))


class Wire(Protocol):
    """The connection between devices during one equation.

    received: bytes that each device of this process got from others, in mesh order.
    """

    received: np.ndarray

    def carry(self, sent: dict[Pair, list[np.ndarray]],
              wanted: dict[Pair, list[tuple[tuple[int, ...], Any]]], dtype: np.dtype) -> Arrived:
        """What arrives here of a round. dtype: of messages that do not say it."""
        ...


class LocalWire:
    """A wire between devices of one process: each gets a copy of its own."""

    __slots__ = ("itemsize", "received")

    def __init__(self, devices: int, itemsize: int) -> None:
        self.received = np.zeros(devices, np.int64)
        self.itemsize = itemsize

    def carry(self, sent: dict[Pair, list[np.ndarray]],
              wanted: dict[Pair, list[tuple[tuple[int, ...], Any]]], dtype: np.dtype) -> Arrived:
        arrived: Arrived = {}
        for (source, to), expected in wanted.items():
            arrays = sent[source, to]
            for data, (shape, its) in zip(arrays, expected, strict=True):
                assert data.shape == shape and data.dtype == (its or dtype)
                if source != to:
                    self.received[to] += data.size * self.itemsize
            arrived[source, to] = [np.array(data) for data in arrays]
        return arrived


def together(wire: Wire, exchanges: Sequence[Generator[Round, Arrived, dict[int, Any]]],
             dtype: np.dtype) -> dict[int, Any]:
    """The results, by device, of exchanges that go on at the same time, round by round."""
    results: dict[int, Any] = {}
    going: list[tuple[Any, Round]] = []

    def step(exchange: Any, arrived: Any, into: list[tuple[Any, Round]]) -> None:
        try:
            into.append((exchange, exchange.send(arrived)))
        except StopIteration as end:
            results.update(end.value)

    for exchange in exchanges:
        step(exchange, None, going)
    while going:
        sent: dict[Pair, list[np.ndarray]] = {}
        wanted: dict[Pair, list[tuple[tuple[int, ...], Any]]] = {}
        for _, r in going:
            sent |= r.sent
            wanted |= r.wanted
        arrived = wire.carry(sent, wanted, dtype)
        now, going = going, []
        for exchange, r in now:
            step(exchange, {pair: arrived[pair] for pair in r.wanted}, going)
    return results


def even_out(received: np.ndarray, group: Sequence[int]) -> None:
    """Let every device of a group count for the mean of the group.

    A block that cannot be cut evenly leaves some devices a chunk ahead of others; which ones is up
    to the algorithm.
    """
    members = list(group)
    received[members] = received[members].sum() // len(members)


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
