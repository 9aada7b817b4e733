"""Wires: carry messages between devices, and count the bytes that each receives.

In the per-device executor a device sees another's buffer only as a message that arrives in a round
(exchanges.py). A wire carries rounds. The one here copies, since all devices are in this process,
and counts bytes at the width of the declared dtype. So the count is measured, and the formulas of
the cost report can be checked against it.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

Pair = tuple[int, int]
Arrived = dict[Pair, list[np.ndarray]]
"""By (source, to) what a device got from another (or itself), in the order in which it was sent."""
Sent = dict[Pair, list[np.ndarray]]
Wanted = dict[Pair, list[tuple[tuple[int, ...], Any]]]


class Round:
    """Messages that travel at the same time.

    sent: arrays by (source, to), from local sources. wanted: shapes and dtypes that local devices
    wait for; the dtype is None where it is that of the whole exchange.
    """

    __slots__ = ("sent", "wanted")

    def __init__(self) -> None:
        self.sent: Sent = {}
        self.wanted: Wanted = {}

    def send(self, source: int, to: int, data: np.ndarray) -> None:
        self.sent.setdefault((source, to), []).append(data)

    def want(self, source: int, to: int, shape: tuple[int, ...], dtype: Any = None) -> None:
        self.wanted.setdefault((source, to), []).append((shape, dtype))


Arriving = Callable[[bool], Arrived | None]


class Wire(Protocol):
    """The connection between devices during one equation.

    received: bytes that each device of this process got from others, in mesh order.
    """

    received: np.ndarray

    def begin(self, sent: Sent, wanted: Wanted, dtype: np.dtype) -> Arriving:
        """Start a round. The result, called with whether to wait, returns what arrived here, or
        None as long as something is missing. dtype: of messages that do not say it.
        """
        ...


class LocalWire:
    """A wire within one process: each device gets a copy of its own."""

    __slots__ = ("itemsize", "received")

    def __init__(self, devices: int, itemsize: int) -> None:
        self.received = np.zeros(devices, np.int64)
        self.itemsize = itemsize

    def begin(self, sent: Sent, wanted: Wanted, dtype: np.dtype) -> Arriving:
        arrived: Arrived = {}
        for (source, to), expected in wanted.items():
            arrays = sent[source, to]
            for data, (shape, its) in zip(arrays, expected, strict=True):
                assert data.shape == shape and data.dtype == (its or dtype)
                if source != to:
                    self.received[to] += data.size * self.itemsize
            arrived[source, to] = [np.array(data) for data in arrays]
        return lambda wait: arrived


class Flight:
    """Exchanges that take place at the same time, round by round.

    results: by device, complete once `advance` returns True.
    """

    __slots__ = ("_arriving", "_dtype", "_going", "_wire", "results")

    def __init__(self, wire: Wire, exchanges: Iterable[Generator[Round, Arrived, dict[int, Any]]],
                 dtype: np.dtype) -> None:
        self.results: dict[int, Any] = {}
        self._wire, self._dtype = wire, dtype
        self._begin([(exchange, None) for exchange in exchanges])

    def _begin(self, arrived: Sequence[tuple[Any, Any]]) -> None:
        """Pass on what arrived to each exchange, and start their next round."""
        self._going: list[tuple[Any, Round]] = []
        sent: Sent = {}
        wanted: Wanted = {}
        for exchange, messages in arrived:
            try:
                round_ = exchange.send(messages)
            except StopIteration as end:
                self.results.update(end.value)
                continue
            self._going.append((exchange, round_))
            sent |= round_.sent
            wanted |= round_.wanted
        if self._going:
            self._arriving = self._wire.begin(sent, wanted, self._dtype)

    def advance(self, wait: bool) -> bool:
        """Go on as far as messages are here, or with `wait` to the end. Have all ended?"""
        while self._going:
            arrived = self._arriving(wait)
            if arrived is None:
                return False
            self._begin([(exchange, {pair: arrived[pair] for pair in r.wanted})
                         for exchange, r in self._going])
        return True


def even_out(received: np.ndarray, group: Sequence[int]) -> None:
    """Set the bytes of each device in a group to their mean.

    A block that does not divide evenly leaves some devices a chunk ahead of others; which ones is
    up to the algorithm.
    """
    members = list(group)
    received[members] = received[members].sum() // len(members)
