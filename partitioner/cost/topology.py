"""How devices are wired, and which links the axes of a mesh use.

A torus of up to three dimensions, or nodes behind a switch; several slices or nodes are joined by
a slower network. Every mesh axis is a product of segments, each a run of neighbours (with a stride)
in one physical dimension; a collective over some axes uses the links of their segments, and how
much it shares them with sibling groups follows from the strides.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...ir.meshes.axes import axis_factor, parse_axis
from ...ir.support.caches import cached
from ...ir.support.lazy import lazy_import
from ...ir.support.named_tuple import NamedTuple
from .hardware import Hardware, hardware

networkx = lazy_import("networkx")

NETWORK = -1


class Segment(NamedTuple):
    """A part of a mesh axis: `size` devices, `stride` apart, along physical dimension `dim`.

    dim is NETWORK for the part between slices or nodes.
    """
    dim: int
    size: int
    stride: int


class Span(NamedTuple):
    """The part of one physical dimension that a group of devices has.

    ring: its links close to a ring of its own. stride: the number of groups that share its links.
    """
    dim: int
    size: int
    stride: int
    ring: bool


class Topology:
    """Devices of one kind, wired, with the axes of a mesh on them.

    shape: of the torus of one slice, or (devices of a node,). slices: slices or nodes.
    axes: mesh axis -> its segments, major first.

    >>> Topology.of("v5p", {"data": 16, "model": 16}).shape
    (16, 16, 1)
    """

    __slots__ = ("_spans", "axes", "hardware", "shape", "slices")

    def __init__(self, device: Hardware, shape: tuple[int, ...], slices: int,
                 axes: Mapping[str, tuple[Segment, ...]]) -> None:
        self.hardware, self.shape, self.slices, self.axes = device, shape, slices, dict(axes)
        self._spans: dict[tuple[str, ...], tuple[Span, ...]] = {}

    @classmethod
    def of(cls, device: str | Hardware, mesh: Mapping[str, int],
           shape: Sequence[int] | None = None, slices: int | None = None) -> Topology:
        """The axes of a mesh (name -> size, major first) on devices of one kind.

        shape: of a slice's torus, if it is known; else one in which every large axis has
        dimensions to itself. slices: of how many slices (or nodes); else as few as hold the mesh.
        Raises ValueError where the mesh does not fit the shape.
        """
        return _topology(hardware(device), tuple(mesh.items()),
                         None if shape is None else tuple(shape), slices)

    @classmethod
    def _wired(cls, device: Hardware, mesh: dict[str, int], shape: tuple[int, ...] | None,
               slices: int | None) -> Topology:
        """The mesh on as few slices as hold it: major axes are split over slices, the rest is laid
        on the given torus, or on the best one that such a slice may have.
        """
        total = math.prod(mesh.values())
        for count in _slice_counts(device, total, shape, slices):
            outer, within = _across(mesh, count)
            if device.kind == "switch":
                found = (math.prod(within.values()),)
                placed = _row_major(within, found)
            elif shape is not None:
                found = shape
                if math.prod(found) != math.prod(within.values()):
                    raise ValueError(
                        f"a slice of shape {found} has {math.prod(found)} devices, the mesh "
                        f"{mesh} has {math.prod(within.values())} a slice")
                placed = _on_shape(within, found)
            else:
                best = _shaped(within, device)
                if best is None:
                    continue               # no torus of these sizes: more and smaller slices
                found, placed = best
            break
        else:
            raise ValueError(f"no slices of {device.name} hold the mesh {mesh}: their torus "
                             f"has {device.dims} dimensions up to {device.longest} long; give "
                             "`shape`")
        stride = math.prod(outer.values())
        axes = {}
        for name in mesh:
            n = outer.get(name, 1)
            stride //= n
            head = (Segment(NETWORK, n, stride),) if n > 1 else ()
            axes[name] = head + placed.get(name, ())
        return cls(device, found, math.prod(outer.values()), axes)

    def spans(self, mesh_axes: Sequence[str]) -> tuple[Span, ...]:
        """The spans of a replica group over these axes in each physical dimension, network first.
        """
        key = tuple(mesh_axes)
        found = self._spans.get(key)
        if found is None:
            found = self._spans[key] = tuple(self._spans_of(key))
        return found

    def _spans_of(self, mesh_axes: tuple[str, ...]):
        """What the segments of mesh axes cover in each physical dimension: one span for each."""
        by_dim: dict[int, list[Segment]] = {}
        for a in mesh_axes:
            for segment in self._parts(a):
                by_dim.setdefault(segment.dim, []).append(segment)
        for dim, parts in sorted(by_dim.items()):
            size = math.prod(p.size for p in parts)
            stride = min(p.stride for p in parts)
            ring = (dim != NETWORK and self.hardware.kind == "torus" and size == self.shape[dim]
                    and self.hardware.wraps(size))
            yield Span(dim, size, stride, ring)

    def _parts(self, axis: Any) -> Sequence[Segment]:
        """The segments of an axis, or of a part of one."""
        whole = self.axes.get(str(axis))
        if whole is not None:
            return whole
        base, _, _ = parse_axis(axis)
        parts = self.axes.get(str(base), ())
        sizes = {str(base): math.prod(p.size for p in parts)}
        if not parts:
            return ()
        _, _, size, skip = axis_factor(str(axis), sizes)
        found: list[Segment] = []
        for p in reversed(parts):             # from the minor end: what is skipped, then the part
            k = math.gcd(skip, p.size)
            skip //= k
            n = math.gcd(size, p.size // k)
            size //= n
            if n > 1:
                found.insert(0, Segment(p.dim, n, p.stride * k))
        return found

    def graph(self) -> Any:
        """The links of one slice as a networkx graph; nodes are coordinates, or "switch".

        Edges have `bandwidth` (bytes/s one way) and `latency` (seconds).
        """
        device = self.hardware
        wire = {"bandwidth": device.link, "latency": device.link_latency}
        if device.kind == "switch":
            graph = networkx.star_graph(["switch", *range(self.shape[0])])
        else:
            graph = networkx.grid_graph(dim=list(reversed(self.shape)))
            for d, n in enumerate(self.shape):
                if device.wraps(n):
                    others = [range(m) for e, m in enumerate(self.shape) if e != d]
                    for rest in itertools.product(*others):
                        ends = [(*rest[:d], i, *rest[d:]) for i in (0, n - 1)]
                        graph.add_edge(*ends)
        networkx.set_edge_attributes(graph, wire["bandwidth"], "bandwidth")
        networkx.set_edge_attributes(graph, wire["latency"], "latency")
        return graph

    def __str__(self) -> str:
        inside = " x ".join(map(str, self.shape))
        if self.hardware.kind == "torus":
            text = f"{self.hardware.name}, torus {inside}"
            return text + (f", {self.slices} slices" if self.slices > 1 else "")
        text = f"{self.hardware.name}, {inside} a node"
        return text + (f", {self.slices} nodes" if self.slices > 1 else "")

    def describe(self, axis: str) -> str:
        """The links of an axis: "dimension 0 (ring of 16)"."""
        parts = []
        for s in self.spans((axis,)):
            if s.dim == NETWORK:
                parts.append(f"network ({s.size})")
            elif self.hardware.kind == "switch":
                parts.append(f"switch ({s.size})")
            else:
                form = "ring" if s.ring else "line"
                shared = f", links shared by {s.stride}" if s.stride > 1 else ""
                parts.append(f"dimension {s.dim} ({form} of {s.size}{shared})")
        return " x ".join(parts) or "one device"


@cached(256)
def _topology(device: Hardware, mesh: tuple[tuple[str, int], ...], shape: tuple[int, ...] | None,
              slices: int | None) -> Topology:
    """`Topology.of`, remembered: it is asked for the same mesh with every program."""
    return Topology._wired(device, dict(mesh), shape, slices)


def _divisors(n: int) -> list[int]:
    """The divisors of n in order, quickly for large n, too."""
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    return sorted({*small, *(n // k for k in small)})


def _slice_counts(device: Hardware, total: int, shape: Sequence[int] | None, slices: int | None
                  ) -> list[int]:
    """The numbers of slices that may hold the mesh, the smallest first."""
    if slices is not None:
        return [slices]
    if shape is not None and device.kind == "torus":
        return [max(1, -(-total // math.prod(shape)))]
    size = math.prod(shape) if shape is not None else device.slice
    return [k for k in _divisors(total) if k * size >= total]


def _across(mesh: Mapping[str, int], slices: int) -> tuple[dict[str, int], dict[str, int]]:
    """Divide the major axes between network and slice: (sizes between slices, sizes within)."""
    outer, within, left = {}, {}, slices
    for name, n in mesh.items():
        k = math.gcd(left, n)
        outer[name], within[name] = k, n // k
        left //= k
    if left > 1:
        raise ValueError(f"the axes of mesh {dict(mesh)} cannot be cut into {slices} slices")
    return outer, within


def _shaped(mesh: Mapping[str, int], device: Hardware
            ) -> tuple[tuple[int, ...], dict[str, tuple[Segment, ...]]] | None:
    """The torus on which the axes have the highest bandwidths (by their product)."""
    best: tuple | None = None
    for shape in _shapes(math.prod(mesh.values()), device.dims, device.longest):
        try:
            placed = _on_shape(mesh, shape)
        except ValueError:
            continue
        score = 0.0
        for parts in placed.values():
            rate = sum((2 if p.size == shape[p.dim] and device.wraps(p.size) else 1) / p.stride
                       for p in parts)
            score += math.log(rate) if rate else 0.0
        key = (round(score, 9), -max(shape), tuple(sorted(shape, reverse=True)) == shape)
        if best is None or key > best[0]:
            best = (key, shape, placed)
    return None if best is None else (best[1], best[2])


def _shapes(n: int, dims: int, longest: int) -> Iterator[tuple[int, ...]]:
    """All tori of n devices."""
    if dims == 1:
        if n <= longest:
            yield (n,)
        return
    for k in _divisors(n):
        if k <= longest:
            for rest in _shapes(n // k, dims - 1, longest):
                yield (k, *rest)


def _on_shape(mesh: Mapping[str, int], shape: tuple[int, ...]) -> dict[str, tuple[Segment, ...]]:
    """The axes on a given torus: whole dimensions for each where that works, else row by row."""
    names = [a for a, n in mesh.items() if n > 1]
    for order in itertools.permutations(range(len(shape))):
        left = list(order)
        placed: dict[str, tuple[Segment, ...]] = {}
        for a in names:
            parts, size = [], 1
            while left and size < mesh[a]:
                d = left.pop(0)
                size *= shape[d]
                if shape[d] > 1:
                    parts.append(Segment(d, shape[d], 1))
            if size != mesh[a]:
                break
            placed[a] = tuple(parts)
        else:
            return placed
    return _row_major(mesh, shape)


def _row_major(mesh: Mapping[str, int], shape: Sequence[int]) -> dict[str, tuple[Segment, ...]]:
    """The axes with the devices in mesh order along the torus in row-major order."""
    found: dict[str, list[Segment]] = {a: [] for a in mesh}
    d = len(shape) - 1
    left, stride = shape[d] if shape else 1, 1
    for a in reversed(list(mesh)):
        need = mesh[a]
        while need > 1:
            while left == 1 and d > 0:
                d -= 1
                left, stride = shape[d], 1
            k = math.gcd(need, left)
            if k == 1:
                raise ValueError(f"mesh {dict(mesh)} does not lie on a torus {tuple(shape)}: axis "
                                 f"{a} of size {mesh[a]} has no whole part on dimension {d}")
            found[a].insert(0, Segment(d, k, stride))
            need, left, stride = need // k, left // k, stride * k
    return {a: tuple(p) for a, p in found.items()}
