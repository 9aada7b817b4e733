"""Tilings of a value over mesh axes, and what a device receives when one becomes another.

A tiling names, for each dimension, the axes that cut it, major first. Device d holds the tile that
its coordinates say; axes that a tiling does not name hold copies. Going from a source to a target
tiling, a device keeps what it has of its new tile and receives the rest, so the bytes received are
those of the element-counting bound: no way of getting there moves fewer to the busiest device.

Everything here is about coordinates along the axes that differ: no list of devices is made, and
nothing depends on the rest of the mesh. Axes are names of disjoint parts of the mesh (whole axes or
sub-axes); where both tilings cut an axis differently, `disjoint_axes` cuts it into common parts.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...meshes.axes import axis_factor, format_sub_axis

Tiling = tuple[tuple[str, ...], ...]
Sizes = Mapping[str, int]


def tile_counts(tiling: Tiling, size: Sizes) -> tuple[int, ...]:
    """Into how many tiles each dimension is cut."""
    return tuple([math.prod([size[a] for a in axes]) for axes in tiling])


def retiled_shape(shape: Sequence[int], source: Tiling, target: Tiling, size: Sizes
                  ) -> tuple[int, ...]:
    """Shape of a target tile where a source tile has this shape; ValueError if it does not fit."""
    out = []
    for d, (n, have, want) in enumerate(zip(shape, tile_counts(source, size),
                                            tile_counts(target, size), strict=True)):
        if n * have % want:
            raise ValueError(f"dimension {d} of size {n * have} cannot be cut into {want} tiles")
        out.append(n * have // want)
    return tuple(out)


def least_shared(shape: Sequence[int], source: Tiling, target: Tiling, size: Sizes) -> int:
    """Elements of its new tile that the device has which has fewest of them.

    shape: of a source tile. Where in every dimension one tiling goes on as the other begins, all
    devices keep the smaller tile; otherwise an axis meets another one, and the devices that are
    first along one and last along the other keep nothing.
    """
    if not nested(source, target, size):
        return 0
    return math.prod([min(n, m) for n, m in zip(
        shape, retiled_shape(shape, source, target, size), strict=True)])


def nested(source: Tiling, target: Tiling, size: Sizes) -> bool:
    """Does in every dimension one of the tilings begin with the axes of the other?"""
    for have, want in zip(source, target, strict=True):
        have, want = ([a for a in axes if size[a] > 1] for axes in (have, want))
        if any(a != b for a, b in zip(have, want, strict=False)):
            return False
    return True


def received(shape: Sequence[int], source: Tiling, target: Tiling, size: Sizes) -> int:
    """Elements that the busiest device must receive: the element-counting bound."""
    whole = math.prod(retiled_shape(shape, source, target, size))
    return whole - least_shared(shape, source, target, size)


def partners(source: Tiling, target: Tiling, size: Sizes) -> int:
    """About how many devices' tiles a new tile consists of; 1 where each comes from one device."""
    return math.prod([max(-(-have // want), 1) for have, want in zip(
        tile_counts(source, size), tile_counts(target, size), strict=True)])


# -- who sends what -------------------------------------------------------------------------------

def place(axes: Iterable[str], at: Mapping[str, int], size: Sizes) -> int:
    """The linear index along axes, the first most significant."""
    index = 0
    for a in axes:
        index = index * size[a] + at[a]
    return index


def coordinates(index: int, axes: Sequence[str], size: Sizes) -> dict[str, int]:
    """The coordinates along axes of a linear index: inverse of `place`."""
    out = {}
    for a in reversed(axes):
        index, out[a] = divmod(index, size[a])
    return out


def tile_pieces(shape: Sequence[int], source: Tiling, target: Tiling, axes: Sequence[str],
                size: Sizes, at: Mapping[str, int]
                ) -> Iterator[tuple[dict[str, int], tuple, tuple]]:
    """What the device at these coordinates puts its new tile together from.

    Yields (coordinates of the device that has the piece, slices of its tile, slices of the new
    tile). A piece that the device has itself comes from itself; copies of others' are taken in
    turn, so that where each device needs one tile, each sends one.
    """
    new = retiled_shape(shape, source, target, size)
    ranges = []
    for n, m, have, want in zip(shape, new, source, target, strict=True):
        begin = place(want, at, size) * m
        own_tile = place(have, at, size)
        found = [] if n else [(own_tile, True, slice(0, 0), slice(0, 0))]     # of nothing: its own
        for tile in range(begin // n, -(-(begin + m) // n)) if n else ():
            low, high = max(begin, tile * n), min(begin + m, (tile + 1) * n)
            found.append((tile, tile == own_tile, slice(low - tile * n, high - tile * n),
                          slice(low - begin, high - begin)))
        ranges.append(found)
    used = {a for dim in source for a in dim}
    wanted = {a for dim in target for a in dim}
    copies = [a for a in axes if a not in used]
    turn = place([a for a in axes if a not in wanted], at, size)
    turn %= math.prod([size[a] for a in copies])
    other = coordinates(turn, copies, size)
    for parts in _product(ranges):
        where = dict(at)
        if not all(own for _, own, _, _ in parts):
            where.update(other)
            for (tile, _, _, _), dim in zip(parts, source, strict=True):
                where.update(coordinates(tile, dim, size))
        yield where, tuple(p[2] for p in parts), tuple(p[3] for p in parts)


def _product(ranges: Sequence[list]) -> Iterator[tuple]:
    if not ranges:
        yield ()
        return
    for first in ranges[0]:
        for rest in _product(ranges[1:]):
            yield (first, *rest)


# -- common parts of axes -------------------------------------------------------------------------

def disjoint_axes(tilings: Sequence[Tiling], mesh_shape: Mapping[str, int],
                  cut: Mapping[str, Sequence[int]] | None = None) -> list[Tiling]:
    """The tilings with axes cut into parts that none of them cuts again.

    cut: for mesh axes, products at which to cut as well where that goes with the others, e.g.
    {"x": [2]} for x as 2 times the rest. Raises ValueError where an axis of size 6 would have to be
    cut at both 2 and 3.
    """
    cuts: dict[str, set[int]] = {}
    for tiling in tilings:
        for axes in tiling:
            for name in axes:
                base, pre, size, _ = axis_factor(name, mesh_shape)
                cuts.setdefault(base, set()).update((pre, pre * size))
    for base, products in sorted(cuts.items()):
        order = sorted(products)
        if any(b % a for a, b in zip(order, order[1:], strict=False)):
            raise ValueError(f"axis {base} cannot be cut at all of {order}")
    for base, products in (cut or {}).items():
        for product in products:
            if base in cuts and all(max(c, product) % min(c, product) == 0 for c in cuts[base]):
                cuts[base].add(product)
    return [tuple(tuple(part for name in axes for part in _parts(name, cuts, mesh_shape))
                  for axes in tiling) for tiling in tilings]


def _parts(name: str, cuts: Mapping[str, set[int]], mesh_shape: Mapping[str, int]
           ) -> Iterator[str]:
    base, pre, size, _ = axis_factor(name, mesh_shape)
    inside = sorted(c for c in cuts[base] if pre <= c <= pre * size)
    if len(inside) <= 2:
        yield name
        return
    for low, high in zip(inside, inside[1:], strict=False):
        yield format_sub_axis(base, low, high // low)


def merged_axes(tilings: Sequence[Tiling], mesh_shape: Mapping[str, int]) -> list[Tiling]:
    """The tilings with neighbouring parts of an axis as one, where all tilings have them so."""
    names = {name for tiling in tilings for axes in tiling for name in axes}
    spans = {name: axis_factor(name, mesh_shape)[:3] for name in names}
    follows: dict[str, str] = {}
    for a in sorted(names):
        base, pre, size = spans[a]
        for b in sorted(names):
            if spans[b][:2] == (base, pre * size) and all(
                    _adjacent(axes, a, b) for tiling in tilings for axes in tiling):
                follows[a] = b
    second = set(follows.values())

    def join(axes: tuple[str, ...]) -> tuple[str, ...]:
        out = []
        for name in axes:
            if name in second:
                continue
            base, pre, size = spans[name]
            while name in follows:
                name = follows[name]
                size *= spans[name][2]
            out.append(base if size == mesh_shape[base] else format_sub_axis(base, pre, size))
        return tuple(out)

    return [tuple(join(axes) for axes in tiling) for tiling in tilings]


def _adjacent(axes: tuple[str, ...], a: str, b: str) -> bool:
    """Does b follow a directly, or are both absent?"""
    if a in axes:
        i = axes.index(a)
        return i + 1 < len(axes) and axes[i + 1] == b
    return b not in axes
