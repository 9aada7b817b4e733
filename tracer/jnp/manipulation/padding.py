"""jnp.pad: constant, edge, wrap, reflect, statistics, ramp, or a function of the vectors."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.dtypes import issubdtype
from ....ir.ops.elementwise.arithmetic import mul_p, sub_p
from ....ir.ops.reductions.sorting import sort_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...lax.creation import filled_as
from ...operands.broadcasting import select_of, to_type
from ...operands.dtype_promotion import check_arraylike, literal_like, promote_dtypes_inexact
from ...staging.constants import as_array
from ...staging.memoized import memoized
from ..creation.ranges import linspace
from ..elementwise.rounding import round as round_to
from ..reductions import moments
from ..reductions import reduce as reductions
from .shaping import moveaxis

__all__ = ["pad"]
Pairs = list[tuple[Any, Any]]

_ALLOWED: dict[str, tuple[str, ...]] = {
    "edge": (), "wrap": (), "empty": (), "constant": ("constant_values",),
    "linear_ramp": ("end_values",), "maximum": ("stat_length",), "mean": ("stat_length",),
    "median": ("stat_length",), "minimum": ("stat_length",), "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
}


@sharding_notes.moved
@memoized
def pad(array, pad_width, mode="constant", **kwargs):
    """`array` with elements added before and after it along each dimension.

    pad_width: a number, a pair (before, after) for all dimensions, or a pair for each.
    mode: "constant" (with `constant_values`, 0 by default), "edge", "reflect", "symmetric", "wrap",
    "linear_ramp", "maximum", "mean", "median", "minimum", "empty", or a function.
    Raises ValueError for widths that are negative or of another number.

    >>> jnp.pad(jnp.array([1, 2]), (1, 2), constant_values=9)
    Array([9, 1, 2, 9, 9], dtype=int32)
    """
    check_arraylike("pad", array)
    x = as_array(array)
    widths = _widths(pad_width, x.ndim)
    if callable(mode):
        return _by_function(x, widths, mode, kwargs)
    if mode not in _ALLOWED:
        raise NotImplementedError(f"Unimplemented padding mode '{mode}' for np.pad.")
    unknown = set(kwargs) - set(_ALLOWED[mode])
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': "
                         f"{sorted(unknown)}")
    if mode == "constant":
        return _constant(x, widths, kwargs.get("constant_values", 0))
    if mode in ("reflect", "symmetric"):
        return _reflect(x, widths, mode, kwargs.get("reflect_type", "even"))
    if mode == "linear_ramp":
        ends = _pairs(kwargs.get("end_values", 0), x.ndim, "end_values")
        return _edges(x, widths, lambda v, d, n, high: _ramp(v, d, n, high, ends[d][high]))
    if mode == "edge":
        return _edges(x, widths, _edge)
    if mode == "wrap":
        return _wrap(x, widths)
    if mode == "empty":
        return _edges(x, widths, lambda v, d, n, high: filled_as(
            _sized(v, d, n), literal_like(0, v)))
    return _statistics(x, widths, mode, kwargs.get("stat_length"))


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    """The (before, after) of each dimension, from any of numpy's forms."""
    if isinstance(pad_width, dict):
        raise TypeError("`pad_width` must be of integral type.")
    value = np.asarray(pad_width)
    if not np.issubdtype(value.dtype, np.integer):
        raise TypeError("`pad_width` must be of integral type.")
    pairs = [(int(a), int(b)) for a, b in _pairs(pad_width, ndim, "pad_width")]
    if any(n < 0 for pair in pairs for n in pair):
        raise ValueError("index can't contain negative values")
    return pairs


def _pairs(value: Any, ndim: int, name: str) -> Pairs:
    """A pad_width-like argument as one (before, after) pair per dimension."""
    if not isinstance(value, (tuple, list, np.ndarray)) or (
            isinstance(value, np.ndarray) and not value.ndim):
        return [(value, value)] * ndim
    rows = list(value)
    nested = [isinstance(r, (tuple, list, np.ndarray)) and np.ndim(r) > 0 for r in rows]
    if not any(nested):
        if len(rows) == 1:
            return [(rows[0], rows[0])] * ndim
        if len(rows) == 2:
            return [(rows[0], rows[1])] * ndim
    elif all(nested):
        pairs = [(r[0], r[0]) if len(r) == 1 else (r[0], r[1]) for r in rows
                 if len(r) in (1, 2)]
        if len(pairs) == len(rows):
            if len(pairs) == ndim:
                return pairs
            if len(pairs) == 1:
                return pairs * ndim
    raise ValueError(f"jnp.pad: {name} with nd={ndim} has unsupported shape "
                     f"{np.shape(value)}. Valid shapes are (nd, 2), (1, 2), (2,), (1,), or ().")


def _sized(x: Array, dim: int, n: int) -> tuple[int, ...]:
    return (*x.shape[:dim], n, *x.shape[dim + 1:])


def _constant(x: Array, widths: list[tuple[int, int]], values: Any) -> Array:
    """Pad with one number, or with numbers of their own before and after each dimension."""
    if not isinstance(values, (tuple, list, np.ndarray)):
        config = [(a, b, 0) for a, b in widths]
        return lax.pad(x, literal_like(values, x), config)
    pairs = _pairs(values, x.ndim, "constant_values")
    for d, (before, after) in enumerate(widths):
        for high, n in ((0, before), (1, after)):
            config = [(0, 0, 0)] * x.ndim
            config[d] = (n, 0, 0) if not high else (0, n, 0)
            x = lax.pad(x, literal_like(pairs[d][high], x), config)
    return x


def _edges(x: Array, widths: list[tuple[int, int]], make: Callable[[Array, int, int, int], Any]
           ) -> Array:
    """Dimension by dimension, x between what `make(x, dim, n, high)` gives for its two ends."""
    for d, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        low = [make(x, d, before, 0)] if before else []
        high = [make(x, d, after, 1)] if after else []
        x = lax.concatenate([*low, x, *high], d)
    return x


def _edge(x: Array, dim: int, n: int, high: int) -> Array:
    if not x.shape[dim]:
        raise ValueError("jnp.pad: cannot pad an empty dimension with its edge")
    at = x.shape[dim] - 1 if high else 0
    return to_type(lax.slice_in_dim(x, at, at + 1, axis=dim), _sized(x, dim, n))


def _ramp(x: Array, dim: int, n: int, high: int, end: Any) -> Array:
    at = x.shape[dim] - 1 if high else 0
    edge = lax.index_in_dim(x, at, dim, keepdims=False)
    ramp = linspace(literal_like(end, x), edge, n, endpoint=False,
                    dtype=None if issubdtype(x.dtype, np.inexact) else x.dtype, axis=dim)
    ramp = literal_like(ramp, x)
    return lax.rev(ramp, (dim,)) if high else ramp


def _wrap(x: Array, widths: list[tuple[int, int]]) -> Array:
    """Pad with the array repeated, dimension by dimension."""
    for d, (before, after) in enumerate(widths):
        n = x.shape[d]
        if not n:
            raise ValueError(f"can't extend empty axis {d} using modes other than 'constant' or "
                             "'empty'")
        if not before and not after:
            continue
        times_low, rest_low = divmod(before, n)
        times_high, rest_high = divmod(after, n)
        parts = [x] * (times_low + 1 + times_high)
        if rest_low:
            parts.insert(0, lax.slice_in_dim(x, n - rest_low, n, axis=d))
        if rest_high:
            parts.append(lax.slice_in_dim(x, 0, rest_high, axis=d))
        x = lax.concatenate(parts, d)
    return x


def _reflect(x: Array, widths: list[tuple[int, int]], mode: str, kind: str) -> Array:
    """Pad with the array mirrored at its ends, again and again where padding is longer than it.
    kind "odd": mirrored at the edge's value as well.
    """
    if kind not in ("even", "odd"):
        raise ValueError(f"unsupported value for reflect_type, {kind}")
    offset = 1 if mode == "reflect" else 0
    for d, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        size = x.shape[d]
        if not size:
            raise ValueError(f"can't extend empty axis {d} using modes other than 'constant' or "
                             "'empty'")
        if size == 1 and offset:
            x = _edges(x, [(before, after) if i == d else (0, 0) for i in range(x.ndim)], _edge)
            continue
        for high, wanted in ((0, before), (1, after)):
            while wanted > 0:
                n = x.shape[d]
                take = min(wanted, size - offset)
                if high:
                    part = lax.slice_in_dim(x, n - offset - take, n - offset, axis=d)
                    edge = lax.slice_in_dim(x, n - 1, n, axis=d)
                else:
                    part = lax.slice_in_dim(x, offset, offset + take, axis=d)
                    edge = lax.slice_in_dim(x, 0, 1, axis=d)
                part = lax.rev(part, (d,))
                if kind == "odd":
                    two = mul_p.bind(edge, literal_like(2, x))
                    part = sub_p.bind(to_type(two, part.shape), part)
                x = lax.concatenate([x, part] if high else [part, x], d)
                wanted -= take
    return x


def _statistics(x: Array, widths: list[tuple[int, int]], mode: str, stat_length: Any) -> Array:
    """Pad with the maximum, minimum, mean or median of each end, over `stat_length` elements."""
    reduce = {"maximum": reductions.max, "minimum": reductions.min, "mean": moments.mean,
              "median": _median}[mode]
    lengths = None if stat_length is None else _pairs(stat_length, x.ndim, "stat_length")
    if lengths is not None and any(int(n) < 1 for pair in lengths for n in pair):
        raise ValueError("stat_length of 0 or less is not allowed for jnp.pad")
    for d, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        n = x.shape[d]
        ends = []
        for high in (0, 1):
            length = n if lengths is None else min(int(lengths[d][high]), n)
            part = lax.slice_in_dim(x, n - length if high else 0, n if high else length, axis=d)
            value = reduce(part, axis=d, keepdims=True)
            if issubdtype(x.dtype, np.integer) and value.dtype != x.dtype:
                value = round_to(value)
            ends.append(literal_like(value, x))
        low = [to_type(ends[0], _sized(x, d, before))] if before else []
        high_part = [to_type(ends[1], _sized(x, d, after))] if after else []
        x = lax.concatenate([*low, x, *high_part], d)
    return x


def _median(x: Array, axis: int, keepdims: bool) -> Array:
    n = x.shape[axis]
    ordered = sort_p.bind(*promote_dtypes_inexact(x), dimension=axis, is_stable=True,
                          num_keys=1)[0]
    middle = lax.slice_in_dim(ordered, (n - 1) // 2, n // 2 + 1, axis=axis)
    last = lax.slice_in_dim(ordered, n - 1, n, axis=axis)       # NaN, if any is
    found = select_of(lax.ne(last, last), moments.mean(middle, axis=axis, keepdims=True), last)
    return found if keepdims else lax.squeeze(found, (axis,))


def _by_function(x: Array, widths: list[tuple[int, int]], function: Callable[..., Any],
                 kwargs: dict[str, Any]) -> Array:
    """numpy's protocol: function(padded vector, (before, after), dim, kwargs) -> vector."""
    x = _constant(x, widths, 0)
    for d in range(x.ndim):
        moved = moveaxis(x, d, -1)
        rows = lax.reshape(moved, (-1 if not moved.size else moved.size // moved.shape[-1],
                                   moved.shape[-1]))
        done = []
        for i in range(rows.shape[0]):
            vector = lax.index_in_dim(rows, i, 0, keepdims=False)
            result = function(vector, widths[d], d, kwargs)
            done.append(vector if result is None else as_array(result))
        x = moveaxis(lax.reshape(lax.stack(done, 0), moved.shape), -1, d)
    return x
