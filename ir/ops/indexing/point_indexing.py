"""Gathers and scatters of small windows in row-major arrays, planned once from shapes.

`x[i, j]`, `take_along_axis` and their derivatives are of this kind, as are slices that start at a
different position in each row. An operand is seen as a list of rows, of the dimensions taken whole
after those that are addressed; windows are numbers of rows. Out-of-bounds indices are found by one
unsigned comparison, in which negative ones are large.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...support.buffer_pool import empty
from ...support.named_tuple import NamedTuple
from ...types import Shape
from ..gather_numbers import GatherDimensionNumbers, ScatterDimensionNumbers
from ..rules import permutation_inverse
from .common import query_order, window_dims
from .row_indexing import UNSIGNED, changing

Combine = Callable[[np.ndarray, np.ndarray, np.ndarray], None]
_BLOCK = 1 << 15                # places that are found at a time: they stay in the cache


class Places(NamedTuple):
    """Where windows begin, and of how many rows they are.

    columns: for each number of an index vector the largest that lies inside, and how many rows lie
    between neighbours. base: rows before the first one, by query; None if there are none. offsets:
    of a window's rows; None if it is one. queries, sizes: shapes, of windows in addressed
    dimensions. rows, tail: of the operand seen as rows. order: of a gather's result.
    """
    columns: tuple[tuple[Any, int], ...]
    base: np.ndarray | None
    offsets: np.ndarray | None
    queries: Shape
    sizes: Shape
    rows: int
    tail: Shape
    order: tuple[int, ...]

    def found(self, indices: np.ndarray, base: np.ndarray | None
              ) -> tuple[np.ndarray, np.ndarray | None]:
        """The rows of all windows, and which queries are in bounds (None if all are)."""
        rows: Any = None
        inside: Any = None
        for k, (last, step) in enumerate(self.columns):
            at = indices[..., k]
            outside = at.view(last.dtype) > last
            if outside.any():
                inside = ~outside if inside is None else inside & ~outside
                at = np.clip(at, 0, int(last))
            at = np.asarray(at.astype(np.intp))
            if step != 1:
                at *= step
            rows = at if rows is None else np.add(rows, at, out=rows)
        if base is not None:
            rows += base
        if self.offsets is not None:
            rows = rows[..., None] + self.offsets
        return rows.reshape(-1), inside


def _places(shape: Shape, indices: Shape, kind: np.dtype, slice_sizes: Sequence[int],
            n: GatherDimensionNumbers) -> Places | None:
    """The `Places` of a gather with these shapes, or None if its operand is no list of rows as it
    lies in memory. base, offsets: row numbers of the batch, and of a window's elements.
    """
    if not n.start_index_map or kind.kind != "i" or kind.itemsize not in UNSIGNED or (
            0 in shape or 0 in indices):
        return None
    windows = window_dims(len(shape), n.collapsed_slice_dims, n.operand_batching_dims)
    whole = tuple(d for d in windows if slice_sizes[d] == shape[d])
    partial = tuple(d for d in windows if slice_sizes[d] != shape[d])
    addressed = [d for d in range(len(shape)) if d not in whole]
    laid = [d for d in (*addressed, *whole) if shape[d] != 1]
    if laid != sorted(laid) or any(d in whole for d in n.start_index_map):
        return None
    steps = {d: math.prod([shape[e] for e in addressed[i + 1:]]) for i, d in enumerate(addressed)}
    queries = indices[:-1]
    base: Any = None
    for d, q in zip(n.operand_batching_dims, n.start_indices_batching_dims, strict=True):
        own = np.arange(shape[d]) * steps[d]
        own = own.reshape([-1 if e == q else 1 for e in range(len(queries))])
        base = own if base is None else base + own
    sizes = tuple([slice_sizes[d] for d in partial])
    offsets = None
    if math.prod(sizes) != 1:
        offsets = np.ravel(sum(np.ix_(*[np.arange(slice_sizes[d]) * steps[d] for d in partial])))
    unsigned = UNSIGNED[kind.itemsize]
    return Places(
        tuple([(unsigned(shape[d] - slice_sizes[d]), steps[d]) for d in n.start_index_map]), base,
        offsets, queries, sizes, math.prod([shape[d] for d in addressed]),
        tuple([shape[d] for d in whole]),
        query_order(0, len(queries), partial, whole, n.offset_dims, windows))


def windows_taken(shapes: Sequence[Shape], dtypes: Sequence[np.dtype], n: GatherDimensionNumbers,
                  slice_sizes: Sequence[int], fill: Any, otherwise: Callable[..., np.ndarray]
                  ) -> Callable[..., np.ndarray] | None:
    """The gather of such arrays; None if it is of another kind.

    fill: for windows outside; None if they are moved inside. otherwise: gathers from arrays that do
    not lie in row-major order.
    """
    (shape, indices), (dtype, kind) = shapes, dtypes
    places = _places(shape, indices, kind, slice_sizes, n)
    if places is None:
        return None
    queries, sizes, tail, base = places.queries, places.sizes, places.tail, places.base
    count, width = math.prod(queries), math.prod(sizes)
    size = count * width * math.prod(tail)
    permuted = places.order != tuple(range(len(places.order)))
    step = count                            # queries at a time, all of some items of the first
    if count * width > 2 * _BLOCK:
        each = count // queries[0]
        step = max(1, _BLOCK // (each * width)) * each

    def taken(x: np.ndarray, at: np.ndarray) -> np.ndarray:
        if not x.flags.c_contiguous:
            if x.size > size:
                return otherwise(x, at)
            x = np.ascontiguousarray(x)
        out = empty((count * width, *tail), dtype)
        rows = x.reshape(places.rows, *tail)
        for start in range(0, count, step):
            part, part_base = at, base
            if step < count:
                few = slice(start // each, (start + step) // each)
                part = at[few]
                part_base = base if base is None or len(base) == 1 else base[few]
            found, inside = places.found(part, part_base)
            here = out[start * width:start * width + found.size]
            np.take(rows, found, 0, here, "clip")
            if fill is not None and inside is not None:
                here.reshape(inside.size, width, *tail)[~inside.reshape(-1)] = fill
        out = out.reshape((*queries, *sizes, *tail))
        return out.transpose(places.order) if permuted else out
    return taken


def windows_combined(shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
                     n: ScatterDimensionNumbers, slice_sizes: Sequence[int], combine: Combine,
                     clips: bool) -> Callable[..., np.ndarray] | None:
    """The scatter of such arrays; None if it is of another kind.

    clips: whether windows outside are moved inside; they are dropped otherwise.
    """
    (shape, indices, _), (dtype, kind, _) = shapes, dtypes
    places = _places(shape, indices, kind, slice_sizes, n.as_gather())
    if places is None or math.prod(places.queries) == 1:
        return None
    width = math.prod(places.tail)
    full = (math.prod(places.queries), math.prod(places.sizes))
    order = permutation_inverse(places.order)
    permuted = order != tuple(range(len(order)))

    def change(x: np.ndarray, at: np.ndarray, values: np.ndarray) -> None:
        rows, inside = places.found(at, places.base)
        if permuted:
            values = values.transpose(order)
        values = values.reshape(len(rows), width)
        if inside is not None and not clips:
            valid = np.broadcast_to(inside.reshape(-1, 1), full).reshape(-1)
            rows, values = rows[valid], values[valid]
        combine(x.reshape(places.rows, width), rows, values)
    return changing(change, shape, dtype)
