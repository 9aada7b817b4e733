"""Prices: what the partitioner chooses by, exchanges and computation in one unit.

A plan is judged by one objective. For "time" the unit is an attosecond on the chosen hardware: an
exchange costs its latency and its bytes over the links that it uses (links.py), an equation the
longer of its operations and its bytes through memory. For "bytes" it is a part of a byte received:
an exchange counts little by itself, and computation as FLOPS_PER_BYTE and TRAFFIC say, so that none
is repeated for a few bytes. Prices are integers: their sums are exact, and equal programs cost the
same.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...ir.mesh import AbstractMesh
from ...ir.ops.communication.collective_kinds import KINDS
from ...ir.support.caches import cached
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType, Entries, Shape
from ..redistribution.effects import Move, effect, local_shape
from ..redistribution.redistribute import plan
from .hardware import DEFAULT_HARDWARE, Hardware, hardware
from .links import collective_seconds
from .topology import Topology

OBJECTIVES = ("time", "bytes")
SECOND = 10 ** 18               # units in a second
BYTE = 10 ** 9                  # units in a received byte

# By "bytes": operations and bytes through memory that one received byte is worth, dense bf16 over
# one-way bandwidth of all links: TPU v5e 197e12 / (4 x 45e9) = 1,094; v5p 459e12 / (6 x 90e9) =
# 850; H100 989e12 / 450e9 = 2,200 (Google Cloud TPU system architecture pages; NVIDIA H100 data
# sheet). EXCHANGE: bytes that one more exchange counts.
FLOPS_PER_BYTE = 1000
TRAFFIC = 4000
EXCHANGE = 1e-3
_LARGE = 1e9                   # bytes with which the slope of an exchange is measured
_DTYPES = {1: "int8", 2: "bfloat16", 4: "float32", 8: "float64", 16: "complex128"}


class Price(NamedTuple):
    """The price of a collective: once, and for each byte of one device's operand."""
    fixed: int
    slope: float

    def of(self, nbytes: float) -> int:
        return self.fixed + int(self.slope * nbytes) if nbytes else 0


class Prices:
    """The prices of one mesh. objective: of OBJECTIVES; hardware: whose time, None for "bytes".

    unit: what prices are said in, "ns" or "B"; scale: of one of these. traffic: of a byte through
    memory; flops: of an operation, by the size of an element. margin: how often exchanges count
    that let devices compute the same: by time computation is repeated, and blocks grow, only where
    this halves what exchanges cost.
    """

    __slots__ = ("_exchanges", "flops", "hardware", "margin", "mesh", "objective", "scale",
                 "topology", "traffic", "unit")

    def __init__(self, mesh: AbstractMesh, objective: str, device: Hardware | None) -> None:
        self.mesh, self.objective, self.hardware = mesh, objective, device
        self._exchanges: dict[tuple[str, tuple[str, ...]], Price] = {}
        self.topology = None if device is None else Topology.of(device, mesh.shape)
        if device is None:
            self.unit, self.scale, self.margin = "B", BYTE, 1
            self.traffic = BYTE / TRAFFIC
            self.flops = dict.fromkeys(_DTYPES, BYTE / FLOPS_PER_BYTE)
        else:
            self.unit, self.scale, self.margin = "ns", SECOND // 10 ** 9, 2
            self.traffic = SECOND / device.hbm
            self.flops = {n: SECOND / device.peak_of(dtype) for n, dtype in _DTYPES.items()}

    def on(self, mesh: AbstractMesh) -> Prices:
        """The prices of another mesh of such devices."""
        return _prices(mesh, self.objective, self.hardware)

    def exchange(self, kind: str, axes: Sequence[str]) -> Price:
        """The price of a collective of this kind ("all-gather") over mesh axes."""
        key = kind, tuple(axes)
        found = self._exchanges.get(key)
        if found is None:
            found = self._exchanges[key] = self._exchange(*key)
        return found

    def _exchange(self, kind: str, axes: tuple[str, ...]) -> Price:
        n = math.prod(map(self.mesh.axis_size, axes))
        if n < 2:
            return Price(0, 0.0)
        received = {"all-gather": n - 1, "all-reduce": 2 * (n - 1) / n,
                    "collective-permute": 1}.get(kind, (n - 1) / n)
        if self.topology is None:
            return Price(round(EXCHANGE * BYTE), received * BYTE)
        one, two = (collective_seconds(self.topology, kind, axes, n, int(k * _LARGE),
                                       int(k * _LARGE * received)) for k in (1, 2))
        slope = (two - one) / _LARGE
        return Price(round(max(0.0, one - slope * _LARGE) * 1e12) * 10 ** 6, slope * SECOND)

    def between(self, source: ArrayType, target: ArrayType) -> int:
        """The price of bringing a value from one type to another."""
        return 0 if source.sharding is target.sharding else _between(self, source, target)

    def worth_joining(self, kind: str, axes: Sequence[str]) -> float:
        """Bytes up to which a part of several exchanges is better copied into one for all: it is
        read and written twice for that.
        """
        return self.exchange(kind, axes).fixed / (4 * self.traffic)

    def computation(self, flops: float, itemsize: int, nbytes: float) -> int:
        """The price of so many operations of a product of arrays, and of bytes through memory."""
        work = flops * self.flops[itemsize] if flops else 0.0
        moved = nbytes * self.traffic
        return int(work if work > moved else moved)


def check_objective(objective: str) -> None:
    """Raise ValueError for one that there is not."""
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, got "
                         f"{objective!r}")


def prices_for(mesh: AbstractMesh, objective: str = "time",
               device: str | Hardware = DEFAULT_HARDWARE) -> Prices:
    """The prices of a mesh. Raises ValueError for an objective or a device that is not known."""
    check_objective(objective)
    return _prices(mesh, objective, hardware(device) if objective == "time" else None)


@cached(4096, "prices between types")
def _between(prices: Prices, source: ArrayType, target: ArrayType) -> int:
    if target.mesh is not prices.mesh:          # that of a region with meshes of its own
        prices = prices.on(target.mesh)
    moves = plan(target.mesh, target.shape, source.entries, target.entries,
                 source.sharding.spec.unreduced, target.sharding.spec.unreduced).moves
    itemsize = target.dtype.itemsize
    return sum([prices.exchange(kind, axes).of(n * itemsize) for kind, axes, n in
                exchanges_of(target.mesh, target.shape, moves, source.entries)])


def exchanges_of(mesh: AbstractMesh, shape: Shape, moves: Sequence[Move], source: Entries
                 ) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """(kind, axes, elements of the operand) of the collectives of a plan that starts at `source`.
    """
    local = local_shape(mesh, shape, source)
    for move in moves:
        after, received, _ = effect(mesh, local, move)
        if received and move.kind == "retile":
            yield "collective-permute", move.axes, int(received)
        elif received:
            yield KINDS[move.kind], move.axes, math.prod(local)
        local = after


@cached(32, "prices of meshes")
def _prices(mesh: AbstractMesh, objective: str, device: Hardware | None) -> Prices:
    return Prices(mesh, objective, device)
