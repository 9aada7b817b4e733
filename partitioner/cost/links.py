"""Seconds that a collective takes: latency of its steps, and bytes over the links that it uses.

The alpha-beta model per kind, for rings, lines and tori (both directions of every link are used),
switches, and groups that reach across slices, which go through the network with what one member of
each slice holds. Source: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication:
theory, practice, and experience", Concurrency 2007; docs/cost-model.md has the table.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from .topology import NETWORK, Span, Topology

_MOST_ROUTED = 4096       # members up to which a permutation is routed pair by pair


def collective_seconds(topology: Topology, kind: str, mesh_axes: Sequence[str], size: int,
                       operand_bytes: int, received_bytes: int,
                       pairs: Sequence[tuple[int, int]] | None = None) -> float:
    """Seconds of one run of a collective over `mesh_axes`.

    kind: as of `CollectiveRecord`. operand_bytes: of one device's operand. pairs: of a permutation,
    as (from, to) in the group's order.
    """
    if size <= 1 or not received_bytes:
        return 0.0
    spans = topology.spans(mesh_axes)
    outside = next((s for s in spans if s.dim == NETWORK), None)
    inside = [s for s in spans if s.dim != NETWORK]
    m = outside.size if outside else 1
    n = math.prod(s.size for s in inside)
    if n * m != size and n * m > 1:       # a part of the group (axis_index_groups, sub-axes)
        inside, n, m = _part(inside, size, m)
    model = _Model(topology, inside, n, m)
    if kind == "all-reduce":
        return min(2 * model.reduce_scatter(operand_bytes), model.sum_of_gathered(operand_bytes))
    if kind == "reduce-scatter":
        return model.reduce_scatter(operand_bytes)
    if kind == "all-gather":
        return model.all_gather(operand_bytes)
    if kind == "all-to-all":
        return model.all_to_all(operand_bytes)
    return model.permute(received_bytes, pairs, size)


def _part(inside: list[Span], size: int, m: int) -> tuple[list[Span], int, int]:
    """The spans of a group that is a part of its axes, filled from the inner devices."""
    found, left = [], size
    for s in reversed(inside):
        k = math.gcd(left, s.size)
        if k > 1:
            found.append(Span(s.dim, k, s.stride, s.ring and k == s.size))
            left //= k
    return found, size // left, min(left, m)


class _Model:
    """The times of one group: n devices over `spans`, in each of m slices."""

    def __init__(self, topology: Topology, spans: Sequence[Span], n: int, m: int) -> None:
        self.device = topology.hardware
        self.spans, self.n, self.m = spans, n, m
        self.is_switch = self.device.kind == "switch"

    @property
    def rate(self) -> float:
        """Bytes/s into a device within the slice, with all links of the group in use."""
        if self.is_switch:
            return self.device.link
        return sum((2 if s.ring else 1) * self.device.link / s.stride for s in self.spans)

    @property
    def start(self) -> float:
        """The latency of one sweep over the group within the slice."""
        device = self.device
        if self.n == 1:
            return 0.0
        if self.is_switch:
            return device.start_latency + device.link_latency * math.ceil(math.log2(self.n))
        hops = sum((s.size // 2 if s.ring else s.size - 1) * s.stride for s in self.spans)
        return device.start_latency + device.link_latency * hops

    @property
    def start_outside(self) -> float:
        return self.device.network_latency * math.ceil(math.log2(self.m)) if self.m > 1 else 0.0

    def all_gather(self, block: float) -> float:
        n, m = self.n, self.m
        seconds = self.start + self.start_outside
        if m > 1:
            seconds += (m - 1) * block / self.device.network
        if n > 1:
            seconds += (n - 1) * m * block / self.rate
        return seconds

    def reduce_scatter(self, whole: float) -> float:
        n, m = self.n, self.m
        seconds = self.start + self.start_outside
        if n > 1:
            seconds += (n - 1) / n * whole / self.rate
        if m > 1:
            seconds += (m - 1) / m * (whole / n) / self.device.network
        return seconds

    def sum_of_gathered(self, whole: float) -> float:
        """Seconds of an all-reduce in one sweep: every device adds up what all others sent."""
        return self.all_gather(whole) + self.n * self.m * whole / self.device.hbm

    def all_to_all(self, whole: float) -> float:
        """Seconds of an all-to-all. whole: bytes of the block of a device."""
        n, m = self.n, self.m
        seconds = 0.0
        if n > 1 and self.is_switch:
            seconds = (n - 1) / n * whole / self.rate
        elif n > 1:
            # the busiest link of a ring carries an eighth of (members x buffer); of a line, twice
            seconds = max(whole * s.size * s.stride / ((8 if s.ring else 4) * self.device.link)
                          for s in self.spans)
        if m > 1:
            seconds = max(seconds, (m - 1) / m * whole / self.device.network)
        return self.start + self.start_outside + seconds

    def permute(self, block: float, pairs: Sequence[tuple[int, int]] | None, size: int) -> float:
        """Seconds of a permutation of blocks, by the load of the busiest link on the way. pairs:
        (source, target) members, None for any; size: of the group.
        """
        device = self.device
        if self.m > 1 and (pairs is None or any(a // self.n != b // self.n for a, b in pairs)):
            return self.start_outside + block / device.network
        if self.is_switch:
            return device.start_latency + device.link_latency + block / device.link
        if pairs is None or size > _MOST_ROUTED:
            return self.start + block * max(
                (max(1.0, s.size / (8 if s.ring else 4)) * s.stride for s in self.spans),
                default=1.0) / device.link
        load, hops = self.routed(pairs)
        return device.start_latency + device.link_latency * hops + block * load / device.link

    def routed(self, pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """(blocks on the busiest link, hops of the longest way), one dimension after the other."""
        loads: dict[tuple, int] = {}
        longest = 0
        for a, b in pairs:
            at, to = list(self.place(a % self.n)), self.place(b % self.n)
            hops = 0
            for k, s in enumerate(self.spans):
                d = to[k] - at[k]
                if s.ring and abs(d) > s.size / 2:
                    d -= s.size if d > 0 else -s.size
                step = 1 if d > 0 else -1
                for _ in range(abs(d)):
                    link = (*at[:k], at[k], *at[k + 1:], k, step)
                    loads[link] = loads.get(link, 0) + 1
                    at[k] = (at[k] + step) % s.size
                hops += abs(d) * s.stride
            longest = max(longest, hops)
        most = max((n * self.spans[link[-2]].stride for link, n in loads.items()), default=1)
        return most, max(longest, 1)

    def place(self, member: int) -> tuple[int, ...]:
        """Coordinates of a member, over the spans (the last is minor)."""
        found = []
        for s in reversed(self.spans):
            found.append(member % s.size)
            member //= s.size
        return tuple(reversed(found))
