"""Prices: exchanges and computation in one unit, by which the partitioner chooses.

A plan is judged by one objective. For "time" the unit is an attosecond on the chosen hardware: an
exchange costs its latency plus its bytes over the links that it uses (links.py), an equation the
longer of its arithmetic and its memory traffic. For "bytes" the unit is a fraction of a byte
received: starting an exchange costs little, and computation costs what FLOPS_PER_BYTE and TRAFFIC
say, so that none is repeated to save a few bytes. For "memory" it is a fraction of a byte of a
block, and exchanges hardly count. Prices are integers, so sums are exact and equal programs cost
the same.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ...ir.meshes.mesh import AbstractMesh
from ...ir.op import OPS
from ...ir.program import Equation
from ...ir.support.caches import cached
from ...ir.support.environment import OBJECTIVES
from ...ir.support.lazy import lazy_pattern
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType, Entries, Shape
from ..redistribution.effects import Move, effect, local_shape
from ..redistribution.redistribute import plan
from .hardware import DEFAULT_HARDWARE, Hardware, hardware
from .links import collective_seconds
from .topology import Topology

SECOND = 10 ** 18               # units in a second
BYTE = 10 ** 9                  # units in a received byte

# By "bytes": operations and bytes through memory that one received byte is worth, dense bf16 over
# one-way bandwidth of all links: TPU v5e 197e12 / (4 x 45e9) = 1,094; v5p 459e12 / (6 x 90e9) =
# 850; H100 989e12 / 450e9 = 2,200 (Google Cloud TPU system architecture pages; NVIDIA H100 data
# sheet). EXCHANGE: bytes that one more exchange counts.
FLOPS_PER_BYTE = 1000
TRAFFIC = 4000
EXCHANGE = 1e-3
# How the text of a program names the objective of a trial plan: "time_weight_4_no_repeats".
_NAME = lazy_pattern(r"([a-z]+)(?:_weight_([1-9]\d*))?(_no_repeats)?(_wide)?(_carried_rows)?"
                     r"(_kept_rows)?(?:_idle_(arguments|values|both))?(?:_for_([a-z]+))?")
# `Prices.margin` by time, in a search that is wide, and of plans that repeat nothing.
MARGIN, WIDE_MARGIN, NEVER = 125, 200, 10 ** 8
KEPT = 10 ** 6          # what a reshard counts where a frozen plan says which there are
_LARGE, _SMALL = 10 ** 9, 16    # bytes with which the slope of an exchange is measured
_DTYPES = {1: "int8", 2: "bfloat16", 4: "float32", 8: "float64", 16: "complex128"}


class Price(NamedTuple):
    """The price of a collective: a fixed part, and one for each byte of a device's operand. small:
    the price for few bytes, if there is a way that starts sooner but moves more.
    """
    fixed: int
    slope: float
    small: Price | None = None

    def of(self, nbytes: float) -> int:
        if not nbytes:
            return 0
        found = self.fixed + int(self.slope * nbytes)
        return found if self.small is None else min(found, self.small.of(nbytes))

    @property
    def combine_limit(self) -> float:
        """The size in bytes up to which an exchange is better joined with others: its start costs
        at least a tenth of what its bytes do. 13 MB over 8 GPUs.
        """
        return 10 * self.fixed / self.slope if self.slope else 0.0


class Objective(NamedTuple):
    """What plans are judged by.

    name: of OBJECTIVES. memory_limit: bytes that a device may hold at once; 0: no limit.

    For trial plans (see plans.py): weight: how much more the bytes of blocks count. no_repeats:
    never repeat computation. wide: search longer programs as widely as short ones, and repeat less.
    carried_rows: split what loops carry along dimensions that iterations keep apart. kept_rows:
    rows that slices cut off stay where they are, as padding. idle: split "arguments" or other
    "values" over axes that they leave idle, or "both". tried_for: the objective by which XLA's plan
    is judged, or that of fewest bytes, and by which its exchanges are combined.
    """
    name: str
    hardware: Hardware
    memory_limit: int = 0
    weight: int = 1
    no_repeats: bool = False
    wide: bool = False
    carried_rows: bool = False
    kept_rows: bool = False
    idle: str = ""
    tried_for: str = ""

    @staticmethod
    @cached(32, "what plans are judged by")
    def of(name: str = "time", device: str | Hardware = DEFAULT_HARDWARE,
           memory_limit: float = 0) -> Objective:
        """Raises ValueError for an unknown name or device, and for a limit that is no number of
        bytes.
        """
        parts = _NAME.fullmatch(name)
        if not parts or parts[1] not in OBJECTIVES or parts[8] not in (None, *OBJECTIVES):
            raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, got "
                             f"{name!r}")
        if not (isinstance(memory_limit, (int, float)) and 0 <= memory_limit < math.inf):
            raise ValueError("memory_limit must be the number of bytes that a device may hold, "
                             f"such as 80e9, got {memory_limit!r}")
        return Objective(parts[1], hardware(device), int(memory_limit), int(parts[2] or 1),
                         parts[3] is not None, parts[4] is not None, parts[5] is not None,
                         parts[6] is not None, parts[7] or "", parts[8] or "")

    @property
    def as_attribute(self) -> tuple[str, str, int] | None:
        """The objective as the text of a program states it; None for the default."""
        name = self.name + f"_weight_{self.weight}" * (self.weight > 1)
        name += "_no_repeats" * self.no_repeats + "_wide" * self.wide
        name += "_carried_rows" * self.carried_rows + "_kept_rows" * self.kept_rows
        name += f"_idle_{self.idle}" * bool(self.idle)
        name += f"_for_{self.tried_for}" * bool(self.tried_for)
        stated = name, self.hardware.key, self.memory_limit
        return None if stated == ("time", DEFAULT_HARDWARE, 0) else stated

    @property
    def unlike_usual(self) -> str:
        """In words how the plan for it differs from the usual one; empty for the usual one."""
        split = "arguments and values" if self.idle == "both" else self.idle
        return "; ".join([words for is_so, words in (
            (self.tried_for and self.name == "xla", "as XLA makes it"),
            (self.tried_for and self.name == "bytes", "fewest bytes received, so that choices "
                                                      "are told in bytes"),
            (self.carried_rows, "splits what loops carry along rows that iterations keep apart"),
            (self.kept_rows, "keeps rows that slices cut off as padding"),
            (self.idle, f"splits {split} over axes that they leave idle"),
            (self.no_repeats, "repeats no computation"),
            (self.weight > 1, f"bytes of blocks count {self.weight} times"),
            (self.wide, "searched widely")) if is_so])

    def prices(self, mesh: AbstractMesh, kept: bool = False) -> Prices:
        """The prices of a mesh. kept: of a program that says where values are moved (KEPT)."""
        device = self.hardware if self.name in ("time", "xla") else None
        margin = 100 if device is None else WIDE_MARGIN if self.wide else MARGIN
        return _prices(mesh, self.name, device, self.weight, NEVER if self.no_repeats else margin,
                       KEPT if kept else 1)


class Prices:
    """The prices of one mesh for an objective.

    unit: of prices in texts, "ns" or "B". scale: prices in one unit. traffic: of a byte through
    memory. flops: of an operation, by the size of an element. margin: what an equation and
    exchanges of its operands count, in percent, where devices compute the same for these; by time
    computation is repeated, and blocks grow, where that takes a fifth less. received: of a byte
    received, where time does not count. times: what a reshard counts.
    """

    __slots__ = ("_exchanges", "flops", "made_of", "margin", "mesh", "received", "scale", "times",
                 "topology", "traffic", "unit")

    def __init__(self, mesh: AbstractMesh, name: str, device: Hardware | None, weight: int,
                 margin: int, times: int) -> None:
        self.made_of = name, device, weight, margin, times
        self.mesh, self.margin, self.times = mesh, margin, times
        self._exchanges: dict[tuple[str, tuple[str, ...]], Price] = {}
        self.topology = None if device is None else Topology.of(device, mesh.shape)
        self.received = BYTE
        if device is None:
            self.unit, self.scale = "B", BYTE
            self.traffic = weight * BYTE / TRAFFIC
            self.flops = dict.fromkeys(_DTYPES, BYTE / FLOPS_PER_BYTE)
            if name == "memory":
                self.traffic, self.received = BYTE, BYTE // TRAFFIC
                self.flops = dict.fromkeys(_DTYPES, 1.0)
        else:
            self.unit, self.scale = "ns", SECOND // 10 ** 9
            self.traffic = weight * SECOND / device.hbm
            self.flops = {n: SECOND / device.peak_of(dtype) for n, dtype in _DTYPES.items()}

    def on(self, mesh: AbstractMesh) -> Prices:
        """The prices for another mesh of the same devices."""
        return _prices(mesh, *self.made_of)

    def exchange(self, kind: str, axes: Sequence[str]) -> Price:
        """The price of a collective of this kind ("all-gather") over mesh axes."""
        key = kind, tuple(axes)
        found = self._exchanges.get(key)
        if found is None:
            found = self._exchanges[key] = self._exchange(*key)
        return found

    def exchange_of(self, eqn: Equation) -> Price:
        """The price of a collective equation."""
        collective = eqn.op.collective
        assert collective is not None
        return self.exchange(collective.kind, collective.axes(eqn.params))

    def _exchange(self, kind: str, axes: tuple[str, ...]) -> Price:
        """The price of a collective is linear in bytes: a start, and so much per byte. With a
        topology the line is fitted to two large sizes; an all-reduce has another one for small
        sizes.
        """
        n = math.prod(map(self.mesh.axis_size, axes))
        if n < 2:
            return Price(0, 0.0)
        received = {"all-gather": n - 1, "all-reduce": 2 * (n - 1) / n,
                    "collective-permute": 1}.get(kind, (n - 1) / n)
        topology = self.topology
        if topology is None:
            return Price(round(EXCHANGE * self.received), received * self.received)

        def seconds(nbytes: int) -> float:
            return collective_seconds(topology, kind, axes, n, nbytes, int(nbytes * received))

        def line(one: int, two: int) -> Price:
            slope = (seconds(two) - seconds(one)) / (two - one)
            return Price(round(max(0.0, seconds(one) - slope * one) * 1e12) * 10 ** 6,
                         slope * SECOND)
        return line(_LARGE, 2 * _LARGE)._replace(
            small=line(_SMALL, 2 * _SMALL) if kind == "all-reduce" else None)

    def between(self, source: ArrayType, target: ArrayType) -> int:
        """The price of bringing a value from one type to another."""
        return 0 if source.sharding is target.sharding else _between(self, source, target)[0]

    def moving(self, source: ArrayType, target: ArrayType) -> int:
        """The part of that price that grows with bytes, not that of starting exchanges."""
        return 0 if source.sharding is target.sharding else _between(self, source, target)[1]

    def computation(self, flops: float, itemsize: int, nbytes: float) -> int:
        """The price of these operations of a product, and of bytes through memory."""
        work = flops * self.flops[itemsize] if flops else 0.0
        moved = nbytes * self.traffic
        return int(work if work > moved else moved)


@cached(4096, "prices between types")
def _between(prices: Prices, source: ArrayType, target: ArrayType) -> tuple[int, int]:
    """(the price of bringing a value from one type to another, the part of it that grows with
    bytes).
    """
    if target.mesh is not prices.mesh:          # that of a region with meshes of its own
        prices = prices.on(target.mesh)
    moves = plan(target.mesh, target.shape, source.entries, target.entries,
                 source.sharding.spec.unreduced, target.sharding.spec.unreduced).moves
    itemsize = target.dtype.itemsize
    total = moved = 0
    for kind, axes, n in exchanges_of(target.mesh, target.shape, moves, source.entries):
        price = prices.exchange(kind, axes)
        total += price.of(n * itemsize)
        moved += min(int(price.slope * n * itemsize), price.of(n * itemsize))
    return total, moved


def exchanges_of(mesh: AbstractMesh, shape: Shape, moves: Sequence[Move], source: Entries
                 ) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """(kind, axes, elements of the operand) for the collectives of a plan that starts at `source`.
    """
    local = local_shape(mesh, shape, source)
    for move in moves:
        after, received, _ = effect(mesh, local, move)
        if received and move.kind == "retile":
            yield "collective-permute", move.axes, int(received)
        elif received:
            yield OPS[move.kind].collective.kind, move.axes, math.prod(local)
        local = after


@cached(32, "prices of meshes")
def _prices(mesh: AbstractMesh, *made_of: Any) -> Prices:
    return Prices(mesh, *made_of)
