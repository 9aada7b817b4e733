"""What ops that move, choose and place elements mean, in plain numpy; see ops.py."""
from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .elements import MAXIMUM, MINIMUM, Array, Reference, ordered, wide
from .sums import FOLDS, highest, lowest


def filled(shape: Sequence[int], like: Array, item: Callable[[tuple], Any]) -> Array:
    """An array whose element at each index is `item(index)`."""
    out = np.zeros(shape, like.dtype)
    for index in np.ndindex(*shape):
        out[index] = item(index)
    return out


def broadcast_in_dim(x: Array, *, shape: Any, broadcast_dimensions: Any, sharding: Any) -> Array:
    return filled(shape, x, lambda index: x[tuple(
        0 if n == 1 else index[d] for n, d in zip(x.shape, broadcast_dimensions, strict=True))])


def reshape(x: Array, *, new_sizes: Any, dimensions: Any, sharding: Any) -> Array:
    order = range(x.ndim) if dimensions is None else dimensions
    return np.array(x.transpose(order).ravel().tolist(), x.dtype).reshape(new_sizes)


def pad(x: Array, value: Array, *, padding_config: Any) -> Array:
    shape = [max(0, low + high + n + max(0, n - 1) * inner)
             for n, (low, high, inner) in zip(x.shape, padding_config, strict=True)]
    out = np.full(shape, value, x.dtype)
    for index in np.ndindex(*x.shape):
        place = tuple(low + i * (inner + 1)
                      for i, (low, _, inner) in zip(index, padding_config, strict=True))
        if all(0 <= p < n for p, n in zip(place, shape, strict=True)):
            out[place] = x[index]
    return out


def start_inside(starts: Sequence[Array], shape: Any, sizes: Any) -> tuple[int, ...]:
    """Where a window begins: negative starts count from the end, then it is moved inside."""
    return tuple(max(0, min(int(s), n - k))
                 for s, n, k in zip(starts, shape, sizes, strict=True))


def dynamic_slice(x: Array, *starts: Array, slice_sizes: Any) -> Array:
    at = start_inside(starts, x.shape, slice_sizes)
    return x[tuple(slice(a, a + k) for a, k in zip(at, slice_sizes, strict=True))]


def dynamic_update_slice(x: Array, update: Array, *starts: Array) -> Array:
    at, out = start_inside(starts, x.shape, update.shape), np.array(x)
    out[tuple(slice(a, a + k) for a, k in zip(at, update.shape, strict=True))] = update
    return out


def windows_of(indices: Array, queries: tuple, operand: tuple, sizes: Sequence[int],
               indexed: Sequence[int], batching: Sequence[int], query_batching: Sequence[int],
               mode: Any) -> list[int] | None:
    """Where the window of one query begins; None if it lies outside and is not moved."""
    start = [0] * len(operand)
    for d, v in zip(indexed, indices[queries].tolist(), strict=True):
        last = operand[d] - sizes[d]
        if mode.name == "CLIP":
            v = max(0, min(v, last))
        elif not 0 <= v <= last:
            return None
        start[d] = v
    for d, q in zip(batching, query_batching, strict=True):
        start[d] = queries[q]
    return start


def gather(x: Array, indices: Array, *, dimension_numbers: Any, slice_sizes: Any, mode: Any,
           fill_value: Any, **params: Any) -> Array:
    numbers = dimension_numbers
    kept = [d for d in range(x.ndim)
            if d not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)]
    rank = indices.ndim - 1 + len(kept)
    of_query = [d for d in range(rank) if d not in numbers.offset_dims]
    sizes = dict(zip(of_query, indices.shape[:-1], strict=True)) | dict(
        zip(numbers.offset_dims, (slice_sizes[d] for d in kept), strict=True))
    if fill_value is None:
        fill_value = (np.nan if x.dtype.kind in "fc" else lowest(x.dtype)
                      if x.dtype.kind == "i" else highest(x.dtype))

    def item(index: tuple) -> Any:
        start = windows_of(indices, tuple(index[d] for d in of_query), x.shape, slice_sizes,
                           numbers.start_index_map, numbers.operand_batching_dims,
                           numbers.start_indices_batching_dims, mode)
        if start is None:
            return fill_value
        for d, place in zip(kept, numbers.offset_dims, strict=True):
            start[d] += index[place]
        return x[tuple(start)]
    return filled([sizes[d] for d in range(rank)], x, item)


def scatter(step: Reference) -> Reference:
    def update(x: Array, indices: Array, updates: Array, *, dimension_numbers: Any, mode: Any,
               **params: Any) -> Array:
        numbers, out = dimension_numbers, np.array(wide(x))
        kept = [d for d in range(x.ndim)
                if d not in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)]
        of_query = [d for d in range(updates.ndim) if d not in numbers.update_window_dims]
        sizes = [1] * x.ndim
        for d, place in zip(kept, numbers.update_window_dims, strict=True):
            sizes[d] = updates.shape[place]
        for index in np.ndindex(*updates.shape):
            start = windows_of(indices, tuple(index[d] for d in of_query), x.shape, sizes,
                               numbers.scatter_dims_to_operand_dims,
                               numbers.operand_batching_dims,
                               numbers.scatter_indices_batching_dims, mode)
            if start is not None:
                for d, place in zip(kept, numbers.update_window_dims, strict=True):
                    start[d] += index[place]
                out[tuple(start)] = step(out[tuple(start)], wide(updates)[index])
        return out
    return update


def window_places(shape: Any, window_dimensions: Any, window_strides: Any, padding: Any,
                  base_dilation: Any = None, window_dilation: Any = None
                  ) -> tuple[list[int], Callable[..., Iterator[Any]]]:
    """How many windows there are, and the elements of x that the window at an index holds.

    padding_too: with None for each that lies outside of x.
    """
    ones = (1,) * len(shape)
    base, apart = base_dilation or ones, window_dilation or ones
    spans = [(k - 1) * w + 1 for k, w in zip(window_dimensions, apart, strict=True)]
    counts = [max(0, ((n - 1) * b + 1 if n else 0) + low + high - span + s) // s
              for n, b, (low, high), span, s in
              zip(shape, base, padding, spans, window_strides, strict=True)]

    def elements(index: tuple, padding_too: bool = False) -> Iterator[Any]:
        for offset in np.ndindex(*window_dimensions):
            where = [divmod(i * s - low + o * w, b) for i, s, (low, _), o, w, b in
                     zip(index, window_strides, padding, offset, apart, base, strict=True)]
            if all(not rest and 0 <= q < n for (q, rest), n in zip(where, shape, strict=True)):
                yield tuple(q for q, _ in where)
            elif padding_too:
                yield None
    return counts, elements


def reduce_window(kind: str) -> Reference:
    step, start = FOLDS[kind]

    def reduce(x: Array, **params: Any) -> Array:
        counts, elements = window_places(x.shape, **params)

        def item(index: tuple) -> Any:
            out = np.asarray(start(x.dtype), x.dtype)
            for place in elements(index):
                out = step(out, x[place])
            return out
        return filled(counts, x, item)
    return reduce


def stays(prim: Any) -> Callable[[Any, Any], bool]:
    """Does an element stay selected before another?"""
    return operator.ge if str(getattr(prim, "name", prim)) == "ge" else operator.le


def worst(x: Array, prim: Any) -> Any:
    return FOLDS["max" if stays(prim) is operator.ge else "min"][1](x.dtype)


def select_and_gather_add(tangents: Array, x: Array, *, select_prim: Any, **params: Any) -> Array:
    """A window begins with the worst number, whose tangent is 0."""
    counts, elements = window_places(x.shape, **params)

    def item(index: tuple) -> Any:
        best, tangent = worst(x, select_prim), 0
        for place in elements(index):
            if not stays(select_prim)(best, x[place]):
                best, tangent = x[place], tangents[place]
        return tangent
    return filled(counts, tangents, item)


def select_and_scatter_add(source: Array, x: Array, *, select_prim: Any, **params: Any) -> Array:
    """Padding is selected like other elements, and what it is given is lost."""
    counts, elements = window_places(x.shape, **params)
    assert tuple(counts) == source.shape
    out = np.zeros(x.shape, np.float64)
    for index in np.ndindex(*counts):
        places = list(elements(index, padding_too=True))
        values = [worst(x, select_prim) if p is None else x[p] for p in places]
        best = 0
        for k in range(1, len(places)):
            if not stays(select_prim)(values[best], values[k]):
                best = k
        if places[best] is not None:
            out[places[best]] += source[index]
    return out


def sort(*xs: Array, dimension: int, is_stable: bool, num_keys: int) -> list[Array]:
    """By Python's sort: zeros are equal, NaNs are equal and last."""
    def key(v: Any) -> tuple:
        parts = (v.real, v.imag) if isinstance(v, complex) else (v,)
        return tuple((math.isnan(p), 0 if math.isnan(p) else p) for p in parts)
    out = [np.moveaxis(np.array(x), dimension, -1).copy() for x in xs]
    for row in np.ndindex(*out[0].shape[:-1]):
        keys = [[key(v) for v in x[row].tolist()] for x in out[:num_keys]]
        order = sorted(range(out[0].shape[-1]), key=lambda i: tuple(k[i] for k in keys))
        for x in out:
            x[row] = x[row][order]
    return [np.moveaxis(x, -1, dimension) for x in out]


def top_k(x: Array, *, k: int, axis: int) -> list[Array]:
    values = np.moveaxis(x, axis, -1)
    places = np.zeros((*values.shape[:-1], k), np.int32)
    for row in np.ndindex(*values.shape[:-1]):
        by = ordered(values[row]).tolist()
        places[row] = sorted(range(len(by)), key=lambda i: -int(by[i]))[:k]
    best = np.take_along_axis(values, places, -1)
    return [np.moveaxis(best, -1, axis), np.moveaxis(places, -1, axis)]


def place_rows(x: Array, y: Array, *, dimension: int, start: int, limit: int, low: int) -> Array:
    out, rows = np.moveaxis(np.array(y), dimension, 0), np.moveaxis(x, dimension, 0)
    for i in range(start, limit):
        out[low + i - start] = rows[i]
    return np.moveaxis(out, 0, dimension)


def pieces(x: Array, *, sizes: Sequence[int], axis: int) -> list[Array]:
    ends = list(itertools.accumulate(sizes, initial=0))
    return [np.take(x, range(a, b), axis) for a, b in itertools.pairwise(ends)]


SHAPES: dict[str, Reference] = {
    "broadcast_in_dim": broadcast_in_dim, "reshape": reshape, "pad": pad,
    "dynamic_slice": dynamic_slice, "dynamic_update_slice": dynamic_update_slice,
    "gather": gather, "scatter": scatter(lambda old, new: new),
    **{f"scatter-{k}": scatter(f) for k, f in (
        ("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("max", MAXIMUM),
        ("min", MINIMUM))},
    **{f"reduce_window_{k}": reduce_window(k) for k in ("sum", "max", "min")},
    "select_and_gather_add": select_and_gather_add,
    "select_and_scatter_add": select_and_scatter_add, "sort": sort, "top_k": top_k,
    "place": place_rows, "split": pieces,
    "roll": lambda x, *, dimension, shift: np.take(
        x, [(i - shift) % x.shape[dimension] for i in range(x.shape[dimension])], dimension),
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "stack": lambda *xs, axis: np.concatenate([np.expand_dims(x, axis) for x in xs], axis),
    "unstack": lambda x, *, axis: [np.take(x, i, axis) for i in range(x.shape[axis])],
    "tile": lambda x, *, reps: filled(
        [n * r for n, r in zip(x.shape, reps, strict=True)], x,
        lambda index: x[tuple(i % n for i, n in zip(index, x.shape, strict=True))]),
    "slice": lambda x, *, start_indices, limit_indices, strides: x[tuple(
        slice(*s) for s in zip(start_indices, limit_indices, strides or (1,) * x.ndim,
                               strict=True))],
    "rev": lambda x, *, dimensions: x[tuple(
        slice(None, None, -1 if d in dimensions else 1) for d in range(x.ndim))],
    "squeeze": lambda x, *, dimensions: x.reshape(
        [n for d, n in enumerate(x.shape) if d not in dimensions]),
    "transpose": lambda x, *, permutation: filled(
        [x.shape[d] for d in permutation], x,
        lambda index: x[tuple(index[permutation.index(d)] for d in range(x.ndim))]),
    "iota": lambda *, dtype, shape, dimension, sharding: filled(
        shape, np.zeros((), dtype), lambda index: index[dimension]),
    "empty": lambda *, shape, dtype, out_sharding: np.zeros(shape, dtype),
    "optimization_barrier": lambda *xs: list(xs),
    "shard_alike": lambda x, y: [x, y]}
