"""Quantiles: elements of a sorted array at a fraction of its length, or between two of them."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....ir.ops.elementwise.arithmetic import add_p, div_p, mul_p, sub_p
from ....ir.ops.reductions.sorting import sort_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...lax.creation import filled_as
from ...operands.broadcasting import select_of, to_type
from ...operands.dtype_promotion import check_arraylike, convert, promote_dtypes_inexact
from ...operands.rank_promotion import shape_of
from ...operands.scalars import LEVEL
from ...operands.shape_arguments import canonical_axes
from ...shardings.auto_mode import in_auto_mode
from ...shardings.out_sharding import canonicalize_sharding
from ...staging.constants import as_array
from ..elementwise.logic import isnan
from ..elementwise.two_operands import divide
from ..manipulation.shaping import ravel
from . import reduce as reductions

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]
_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def _merged(a: Any, axis: Any, keepdims: bool) -> tuple[Array, int, tuple[int, ...] | None]:
    """a with the dimensions of a quantile merged into one: array, dimension, kept shape."""
    x = as_array(a)
    if axis is None:
        kept = (1,) * x.ndim if keepdims else None
        return ravel(x), 0, kept
    axes = canonical_axes(axis, x.ndim)
    kept = tuple(1 if d in axes else n for d, n in enumerate(x.shape)) if keepdims else None
    if len(axes) == 1:
        return x, axes[0], kept
    rest = [d for d in range(x.ndim) if d not in axes]
    x = lax.transpose(x, [*rest, *axes])
    n = math.prod(x.shape[len(rest):])
    return lax.reshape(x, (*x.shape[:len(rest)], n)), len(rest), kept


def _quantile(name: str, a: Any, q: Any, axis: Any, method: str, keepdims: bool, weights: Any,
              skip_nan: bool) -> Array:
    """Quantiles q along `axis`: from a sort and two neighbours, or by cumulated weights. skip_nan:
    whether NaN is left out, instead of making its row NaN.
    """
    if method not in _METHODS:
        raise ValueError("method can only be 'linear', 'lower', 'higher', 'midpoint', 'nearest' or "
                         f"'inverted_cdf', got {method!r}")
    if weights is not None and method != "inverted_cdf":
        raise NotImplementedError(f"{method} doesn't support weights. Only method 'inverted_cdf' "
                                  "supports weights.")
    (a,), (q,) = promote_dtypes_inexact(a), promote_dtypes_inexact(q)
    if weights is not None:
        weights = _full_weights(weights, as_array(a), axis)
    x, dim, kept = _merged(a, axis, keepdims)
    q = as_array(q)
    dtype = x.dtype
    if LEVEL[dtype] == 3:
        raise ValueError("quantile does not support complex input, as the operation is poorly "
                         "defined.")
    if q.ndim > 1:
        raise ValueError(f"q must be have rank <= 1, got shape {q.shape}")
    n = x.shape[dim]
    rest = tuple(size for d, size in enumerate(x.shape) if d != dim)
    missing = isnan(x)
    if not skip_nan:
        poisoned = reductions.any(missing, axis=dim, keepdims=True)
        x = select_of(poisoned, x, convert(np.nan, dtype))
    else:
        x = select_of(missing, x, convert(np.nan, dtype))
    if not n:
        out = filled_as((*q.shape, *rest), convert(np.nan, dtype))
    elif method == "inverted_cdf":
        if weights is not None:
            weights = _merged(weights, axis, False)[0]
        out = _by_weight(x, q, dim, weights, missing if skip_nan else None)
    else:
        x = sort_p.bind(x, dimension=dim, is_stable=True, num_keys=1)[0]
        top: Any = convert(n - 1, q.dtype)
        if skip_nan:
            found = reductions.sum(lax.bitwise_not(missing), axis=dim)
            top = sub_p.bind(convert(found, q.dtype), convert(1, q.dtype))
        out = _at_share(x, q, dim, top, method)
    return lax.reshape(out, (*q.shape, *kept)) if kept is not None else out


def _at_share(x: Array, q: Array, dim: int, top: Any, method: str) -> Array:
    """Quantiles of x, sorted along a dimension: elements around the position q * top.

    top: the last position, one for all rows or one for each. The result has the dimensions of q,
    then those of x but `dim`. Positions are of the dtype of q, values of that of x.
    """
    dtype = x.dtype
    zero, one = convert(0, q.dtype), convert(1, q.dtype)
    levels, rest = q.ndim, x.ndim - 1
    if shape_of(top):
        q = lax.expand_dims(q, tuple(range(levels, levels + rest)))
        top = lax.expand_dims(top, tuple(range(levels)))
    place = mul_p.bind(q, top) if shape_of(q) == shape_of(top) or not shape_of(top) else mul_p.bind(
        to_type(q, lax.broadcast_shapes(shape_of(q), shape_of(top))), top)
    low, high = lax.floor(place), lax.ceil(place)
    high_weight = sub_p.bind(place, low)
    low_weight = sub_p.bind(one, high_weight)
    bound = to_type(top, shape_of(low)) if shape_of(top) else top
    low, high = (lax.clamp(zero, p, bound) for p in (low, high))
    low_value, high_value = _elements(x, dim, low, levels), _elements(x, dim, high, levels)
    if method == "lower":
        return low_value
    if method == "higher":
        return high_value
    if method == "midpoint":
        return mul_p.bind(add_p.bind(low_value, high_value), convert(0.5, dtype))
    if shape_of(high_weight) and shape_of(high_weight) != low_value.shape:
        wide = (*q.shape[:levels], *[1] * rest)
        low_weight, high_weight = lax.reshape(low_weight, wide), lax.reshape(high_weight, wide)
    if method == "nearest":
        return select_of(lax.le(high_weight, convert(0.5, q.dtype)), high_value, low_value)
    low_part = mul_p.bind(convert(low_value, q.dtype), low_weight)
    return convert(add_p.bind(low_part, mul_p.bind(convert(high_value, q.dtype), high_weight)),
                   dtype)


def _elements(x: Array, dim: int, position: Any, levels: int) -> Array:
    """The elements of x at whole positions along a dimension: the same in every row if positions
    have `levels` dimensions, else one in each."""
    index = convert(position, np.dtype("int32"))
    others = tuple(d for d in range(x.ndim) if d != dim)
    if len(shape_of(index)) == levels:
        numbers = lax.GatherDimensionNumbers(
            offset_dims=tuple(range(levels, levels + len(others))), collapsed_slice_dims=(dim,),
            start_index_map=(dim,))
        sizes = tuple(1 if d == dim else n for d, n in enumerate(x.shape))
        return lax.gather(x, lax.expand_dims(index, (levels,)), numbers, sizes)
    index = lax.max(np.int32(0), index)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=(dim,), start_index_map=(dim,),
        operand_batching_dims=others,
        start_indices_batching_dims=tuple(range(levels, levels + len(others))))
    return lax.gather(x, lax.expand_dims(index, (len(shape_of(index)),)), numbers, (1,) * x.ndim)


def _full_weights(weights: Any, a: Array, axis: Any) -> Array:
    """Weights in the shape of a; along one dimension they may be given as a vector."""
    check_arraylike("quantile", weights)
    weights = convert(as_array(weights), a.dtype)
    if weights.shape == a.shape:
        return weights
    if axis is None:
        raise ValueError("Weights shape must match 'a' shape when axis is None.")
    axes = canonical_axes(axis, a.ndim)
    if weights.shape != tuple(a.shape[d] for d in axes):
        raise ValueError(f"Weights shape {weights.shape} must match reduction axes "
                         f"{tuple(a.shape[d] for d in axes)}")
    order = sorted(range(len(axes)), key=lambda k: axes[k])
    return lax.broadcast_in_dim(lax.transpose(weights, order), a.shape, sorted(axes))


def _by_weight(x: Array, q: Array, dim: int, weights: Array | None, missing: Array | None) -> Array:
    """The first elements, in ascending order, at which a share q of the weight is reached."""
    dtype = x.dtype
    weights = lax.full_like(x, 1) if weights is None else weights
    if missing is not None:
        weights = select_of(missing, weights, convert(0, dtype))
    q = convert(q, dtype)
    x, weights = sort_p.bind(x, weights, dimension=dim, is_stable=True, num_keys=1)
    reached = lax.cumsum(weights, axis=dim)
    total = lax.slice_in_dim(reached, x.shape[dim] - 1, None, axis=dim)
    share = div_p.bind(reached, to_type(total, x.shape))
    levels = q.ndim
    share = lax.broadcast_in_dim(share, (*q.shape, *x.shape), range(levels, levels + x.ndim))
    below = lax.lt(share, lax.broadcast_in_dim(q, share.shape, range(levels)))
    position = reductions.sum(below, axis=levels + dim)
    last = convert(x.shape[dim] - 1, position.dtype)
    return _elements(x, dim, lax.min(position, last), levels)


@sharding_notes.ordered
def quantile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False, *,
             weights=None):
    """The values below which shares q (between 0 and 1) of the elements lie."""
    _unsupported("quantile", out, overwrite_input)
    check_arraylike("quantile", a, q)
    return _quantile("quantile", a, q, axis, method, keepdims, weights, False)


@sharding_notes.ordered
def nanquantile(a, q, axis=None, out=None, overwrite_input=False, method="linear",
                keepdims=False, *, weights=None):
    """The values below which given shares of the elements lie, as in `quantile`, with NaN left out.
    """
    _unsupported("nanquantile", out, overwrite_input)
    check_arraylike("nanquantile", a, q)
    return _quantile("nanquantile", a, q, axis, method, keepdims, weights, True)


def _unsupported(name: str, out: Any, overwrite: Any) -> None:
    if overwrite or out is not None:
        raise ValueError(f"jax.numpy.{name} does not support overwrite_input=True or out != None")


@sharding_notes.ordered
def percentile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False,
               *, weights=None, out_sharding=None):
    """The values below which given percentages of the elements lie: `quantile` of q / 100."""
    _unsupported("percentile", out, overwrite_input)
    check_arraylike("percentile", a, q)
    (q,) = promote_dtypes_inexact(q)
    share = divide(q, 100)
    operands = [as_array(a), share] if weights is None else [as_array(a), share, as_array(weights)]

    def run(x: Any, y: Any, w: Any = None) -> Any:
        return _quantile("percentile", x, y, axis, method, keepdims, w, False)

    return in_auto_mode(run, canonicalize_sharding(out_sharding, "jnp.percentile"), *operands)


@sharding_notes.ordered
def nanpercentile(a, q, axis=None, out=None, overwrite_input=False, method="linear",
                  keepdims=False, *, weights=None):
    """The values below which given percentages of the elements lie, with NaN left out."""
    _unsupported("nanpercentile", out, overwrite_input)
    check_arraylike("nanpercentile", a, q)
    (q,) = promote_dtypes_inexact(q)
    share = divide(q, 100)
    return _quantile("nanpercentile", a, share, axis, method, keepdims, weights, True)


@sharding_notes.ordered
def median(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    """The element in the middle of the sorted elements, or the mean of the two that are.

    axis: an int, a tuple, or None for all dimensions. NaN if an element is.

    >>> jnp.median(jnp.array([[3, 1, 2], [9, 7, 8]]), axis=1)
    Array([2., 8.], dtype=float32)
    """
    _unsupported("median", out, overwrite_input)
    check_arraylike("median", a)
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, None, False)


@sharding_notes.ordered
def nanmedian(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    """The element in the middle of the sorted elements, as in `median`, with NaN left out."""
    _unsupported("nanmedian", out, overwrite_input)
    check_arraylike("nanmedian", a)
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, None, True)
