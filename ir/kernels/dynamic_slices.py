"""Reads and writes slices whose starts are run-time values; indexing is planned from shapes.

In a loop, a slice is often all that an iteration touches, so locating it must not cost more than
that. If starts differ between devices, all slices are read by indexing the array once, as rows.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..support.named_tuple import NamedTuple
from ..types import Shape
from .device_dimensions import copied


class Place(NamedTuple):
    """Where a part lies along a dimension of an array: `size` elements from a start on, which is
    the index of this number and `last` at most."""
    index: int
    dim: int
    last: int
    size: int


class Window(NamedTuple):
    """A part of an array with common starts. clips: whether starts outside are moved inside; else
    nothing is written there. ufunc: what is done with the elements; None if they are replaced.
    vector: whether the indices are one array, after the first operand, or scalars at the end.
    lead: how many device dimensions there are.
    """
    places: tuple[Place, ...]
    lead: int
    clips: bool = True
    ufunc: np.ufunc | None = None
    vector: bool = False


def _part(lead: int, shapes: Sequence[Shape], sizes: Sequence[int]
          ) -> tuple[Callable[[Sequence[np.ndarray]], tuple[slice, ...]], Window] | None:
    """The part, a function of the starts; None if they differ between devices.

    shapes: of the array that is cut, and of the starts. sizes: of the part.
    """
    whole, *starts = shapes
    if any([math.prod(s) != 1 for s in starts]):
        return None
    moved = [(d, n - m, m) for d, (m, n) in enumerate(zip(sizes, whole[lead:], strict=True))
             if m != n]
    window = Window(tuple([Place(d, lead + d, last, size) for d, last, size in moved]), lead)
    if len(moved) == 1:
        ((place, last, size),) = moved
        front = (slice(None),) * (lead + place)

        def one(starts: Sequence[np.ndarray]) -> tuple[slice, ...]:
            first = starts[place].item()
            if first < 0:
                first = 0
            elif first > last:
                first = last
            return (*front, slice(first, first + size))
        return one, window

    def several(starts: Sequence[np.ndarray]) -> tuple[slice, ...]:
        part = [slice(None)] * len(whole)
        for d, last, size in moved:
            first = min(max(starts[d].item(), 0), last)
            part[lead + d] = slice(first, first + size)
        return tuple(part)
    return several, window


def clamped(start: np.ndarray, last: int) -> np.ndarray:
    """Starts of any integer dtype moved inside: 0 to `last`, as int64."""
    return np.minimum(np.maximum(start.astype(np.int64), 0), last)


class _Rows(NamedTuple):
    """The parts that devices have at starts of their own, as rows of the array as a matrix.

    shape: of the array with what lies in front of and at the moved dimensions as one. base: the
    rows of parts at 0. starts: of each start that counts its index, the most that it is, how many
    rows one step is, and its shape beside those of others.
    """
    shape: Shape
    base: np.ndarray
    starts: tuple[tuple[int, int, int, Shape], ...]

    def at(self, starts: Sequence[np.ndarray]) -> np.ndarray:
        rows = self.base
        for i, last, step, shape in self.starts:
            rows = rows + clamped(starts[i], last).reshape(shape) * step
        return rows


SLAB = 1 << 14              # elements of a part for which a copy of its own costs little


def _rows(lead: int, shapes: Sequence[Shape], sizes: Sequence[int]) -> _Rows | None:
    """Where small parts are, if all dimensions after those that move are whole.

    shapes: of the array that is cut, and of the starts. sizes: of the part.
    """
    whole, *starts = shapes
    moved = [d for d, m in enumerate(sizes) if m != whole[lead + d]]
    if math.prod(sizes) >= SLAB or moved != list(range(len(moved))) or not all(sizes):
        return None
    devices = tuple([max(s[d] for s in shapes) for d in range(lead)])
    grid = (*devices, *[sizes[d] for d in moved])
    held = whole[:lead + len(moved)]
    steps = [math.prod(held[d + 1:]) for d in range(len(held))]
    base = np.zeros(grid, np.intp)
    for d, n in enumerate(grid):
        if d >= lead or held[d] > 1:
            base += (np.arange(n) * steps[d]).reshape((-1,) + (1,) * (len(grid) - d - 1))
    found = [(d, held[lead + d] - sizes[d], steps[lead + d],
              (*starts[d][:lead], *(1,) * len(moved))) for d in moved]
    rows = math.prod(held)
    return _Rows((rows, *whole[len(held):]), base, tuple(found))


def part_taken(lead: int, shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
               params: dict[str, Any]) -> Callable[..., np.ndarray] | None:
    """The slice of an array of this shape, decided once; None if that does not pay."""
    sizes = params["slice_sizes"]
    found = _part(lead, shapes, sizes)
    if found is None:
        rows = _rows(lead, shapes, sizes)
        if rows is None:
            return None
        return lambda x, *starts: x.reshape(rows.shape).take(rows.at(starts), 0)
    part, window = found

    def taken(x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        return x[part(starts)]
    taken.window = window  # type: ignore[attr-defined]
    return taken


def part_updated(lead: int, shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
                 params: dict[str, Any]) -> Callable[..., np.ndarray] | None:
    """The update of an array of this shape, decided once; None if that does not pay."""
    whole, update, *starts = shapes
    if any([max(m) > n for n, *m in zip(whole[:lead], update, *starts, strict=False)]):
        return None
    found = _part(lead, (whole, *starts), update[lead:])
    if found is None:
        rows = _rows(lead, (whole, *starts), update[lead:])
        return None if rows is None else _rows_updated(rows)
    part, window = found

    def over(x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        x[part(starts)] = update
        return x

    def updated(x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        return over(copied(x), update, *starts)
    updated.over = over  # type: ignore[attr-defined]
    updated.window = over.window = window  # type: ignore[attr-defined]
    return updated


def _rows_updated(rows: _Rows) -> Callable[..., np.ndarray]:
    """The update of rows at varying starts; its attribute `over` is the one that overwrites x."""
    def over(x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        flat = x.reshape(rows.shape)
        flat[rows.at(starts)] = update
        if not np.may_share_memory(flat, x):
            x[...] = flat.reshape(x.shape)
        return x

    def updated(x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        flat = x.copy().reshape(rows.shape)
        flat[rows.at(starts)] = update
        return flat.reshape(x.shape)
    updated.over = over  # type: ignore[attr-defined]
    return updated
