"""Gathers and scatters of whole rows, each at one index, planned once from shapes.

`table[tokens]` and its derivative are of this kind. Out-of-bounds indices are found by one unsigned
comparison, in which negative ones are large.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...support.buffer_pool import empty
from ...types import Shape
from ..gather_numbers import GatherDimensionNumbers, ScatterDimensionNumbers

Combine = Callable[[np.ndarray, np.ndarray, np.ndarray], None]
UNSIGNED = {4: np.uint32, 8: np.uint64}
_FIRST = np.zeros(1, np.intp)


def _indexed(shape: Shape, indices: Shape, kind: np.dtype, slice_sizes: Sequence[int],
             n: GatherDimensionNumbers) -> int | None:
    """The one dimension that is indexed, by one index each; None if there is another or none."""
    if n.operand_batching_dims or len(n.start_index_map) != 1 or (
            n.collapsed_slice_dims != n.start_index_map):
        return None
    if kind.kind != "i" or kind.itemsize not in UNSIGNED or 0 in shape or 0 in indices:
        return None
    (d,) = n.start_index_map
    whole = (*shape[:d], 1, *shape[d + 1:])
    return d if tuple(slice_sizes) == whole else None


def rows_taken(shapes: Sequence[Shape], dtypes: Sequence[np.dtype], n: GatherDimensionNumbers,
               slice_sizes: Sequence[int], fill: Any, otherwise: Callable[..., np.ndarray]
               ) -> Callable[..., np.ndarray] | None:
    """The gather of such arrays; None if it is of another kind.

    fill: for rows outside; None if they are moved inside. otherwise: gathers from arrays that do
    not lie in row-major order.
    """
    (shape, indices), (dtype, kind) = shapes, dtypes
    found = _indexed(shape, indices, kind, slice_sizes, n)
    if found is None:
        return None
    d, queries = found, indices[:-1]
    natural = (*shape[:d], *queries, *shape[d + 1:])
    windows, places = iter([*range(d), *range(d + len(queries), len(natural))]), iter(
        range(d, d + len(queries)))
    order = tuple([next(windows if r in n.offset_dims else places) for r in range(len(natural))])
    permuted = order != tuple(range(len(order)))
    count = 1
    for m in queries:
        count *= m
    rows = (*shape[:d], count, *shape[d + 1:])
    unsigned = UNSIGNED[kind.itemsize]
    last, front = unsigned(shape[d] - 1), (slice(None),) * d

    def taken(x: np.ndarray, at: np.ndarray) -> np.ndarray:
        if not x.flags.c_contiguous:
            return otherwise(x, at)
        at = at.reshape(count)
        out = np.take(x, at, d, empty(rows, dtype), "clip")
        if fill is not None:
            outside = at.view(unsigned) > last
            if outside.any():
                out[(*front, outside)] = fill
        out = out.reshape(natural)
        return out.transpose(order) if permuted else out
    return taken


def rows_combined(shapes: Sequence[Shape], dtypes: Sequence[np.dtype], n: ScatterDimensionNumbers,
                  slice_sizes: Sequence[int], combine: Combine
                  ) -> Callable[..., np.ndarray] | None:
    """The scatter of such arrays, of rows in front; None if it is of another kind."""
    (shape, indices, updates), (dtype, kind, _) = shapes, dtypes
    if _indexed(shape, indices, kind, slice_sizes, n.as_gather()) != 0 or (
            n.update_window_dims != tuple(range(len(indices) - 1, len(updates)))):
        return None
    width = count = 1
    for m in shape[1:]:
        width *= m
    for m in indices:
        count *= m
    unsigned = UNSIGNED[kind.itemsize]
    last = unsigned(shape[0] - 1)

    def change(x: np.ndarray, at: np.ndarray, values: np.ndarray) -> None:
        places, rows, values = at.reshape(count), x.reshape(shape[0], width), values.reshape(
            count, width)
        if count == 1:
            place = places.item()
            if 0 <= place <= last:
                combine(rows[place:place + 1], _FIRST, values)
            return
        outside = places.view(unsigned) > last
        if outside.any():
            inside = ~outside
            places, values = places[inside], values[inside]
        combine(rows, places.astype(np.intp, copy=False), values)
    return changing(change, shape, dtype)


def changing(change: Callable[[np.ndarray, np.ndarray, np.ndarray], None], shape: Shape,
             dtype: np.dtype) -> Callable[..., np.ndarray]:
    """The scatter that `change` does to an array of its own: to a copy of the operand, or, as
    `over`, to the operand itself where that can be written to."""
    def combined(x: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
        out = empty(shape, dtype)
        np.copyto(out, x)
        change(out, at, values)
        return out

    def over(x: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
        """x with the rows changed, written over x where that can be written to."""
        if not x.flags.carray or np.may_share_memory(x, values):
            return combined(x, at, values)
        change(x, at, values)
        return x
    combined.over = over  # type: ignore[attr-defined]
    return combined
