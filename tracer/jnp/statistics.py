"""Statistics: median, quantiles, covariance, histograms, bincount."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.array import Array
from ...ir.ops.arithmetic import add_p, div_p, mul_p, sub_p
from ...ir.ops.complex_parts import complex_p
from ...ir.ops.sharding import reshard_p
from ...ir.ops.sorting import sort_p
from .. import lax
from ..broadcasting import select_of
from ..constants import as_array
from ..dtype_promotion import (
    LEVEL,
    check_arraylike,
    convert,
    dtype_name,
    promote_dtypes_inexact,
    shape_of,
    user_dtype,
)
from ..lax.creation import filled_as
from ..out_sharding import output_sharding
from ..shape_arguments import canonical_axes
from . import moments, reductions
from .complex_numbers import conjugate, imag, real
from .contraction import dot
from .diagonals import diag
from .elementwise import clip, sqrt
from .joining import concatenate
from .logic import isnan
from .reductions import to_shape
from .shaping import moveaxis, ravel

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


# -- quantiles -------------------------------------------------------------------------------------

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
    if method not in _METHODS:
        raise ValueError("method can only be 'linear', 'lower', 'higher', 'midpoint', or "
                         f"'nearest', got {method!r}")
    if weights is not None:
        raise ValueError(f"jnp.{name}: only method 'inverted_cdf' supports weights, and it is not "
                         "among those of this function")
    a, q = promote_dtypes_inexact(a, q)
    x, dim, kept = _merged(a, axis, keepdims)
    q = as_array(q)
    if LEVEL[x.dtype] == 3:
        raise ValueError("quantile does not support complex input, as the operation is poorly "
                         "defined.")
    if q.ndim > 1:
        raise ValueError(f"q must be have rank <= 1, got shape {q.shape}")
    x = moveaxis(x, dim, -1)
    n = x.shape[-1]
    last = x.ndim - 1
    dtype = x.dtype
    missing = isnan(x)
    if skip_nan:
        x = select_of(missing, x, convert(np.nan, dtype))
        x = sort_p.bind(x, dimension=last, is_stable=True, num_keys=1)[0]
        count = convert(reductions.sum(lax.bitwise_not(missing), axis=-1), dtype)
    else:
        poisoned = reductions.any(missing, axis=-1, keepdims=True)
        x = select_of(poisoned, x, convert(np.nan, dtype))
        x = sort_p.bind(x, dimension=last, is_stable=True, num_keys=1)[0]
        count = convert(n, dtype)
    one = dtype.type(1)
    top: Any = sub_p.bind(count, one) if isinstance(count, Array) else dtype.type(n - 1)
    results = []
    levels = [lax.index_in_dim(q, i, 0, keepdims=False) for i in range(q.shape[0])] \
        if q.ndim else [q]
    for level in levels:
        results.append(_at_level(x, level, top, n, method, dtype))
    out = lax.stack(results, 0) if q.ndim else results[0]
    if kept is not None:
        out = lax.reshape(out, (*q.shape, *kept))
    return out


def _at_level(x: Array, level: Any, top: Any, n: int, method: str, dtype: Any) -> Array:
    """One quantile of sorted rows: between the two elements around position level * top."""
    place = lax.mul(level, top) if not isinstance(top, Array) or not shape_of(top) else lax.mul(
        to_shape(level, shape_of(top)), top)
    low, high = lax.floor(place), lax.ceil(place)
    high_weight = sub_p.bind(place, low)
    low_weight = sub_p.bind(dtype.type(1), high_weight)
    zero = dtype.type(0)

    def element(position: Any) -> Array:
        position = lax.max(zero, lax.min(position, top))
        index = convert(position, np.dtype("int32"))
        if not shape_of(index):
            # The same position in every row.
            numbers = lax.GatherDimensionNumbers(
                offset_dims=tuple(range(x.ndim - 1)), collapsed_slice_dims=(x.ndim - 1,),
                start_index_map=(x.ndim - 1,))
            return lax.gather(x, lax.expand_dims(index, (0,)), numbers, (*x.shape[:-1], 1))
        index = lax.max(np.int32(0), index)
        numbers = lax.GatherDimensionNumbers(
            offset_dims=(), collapsed_slice_dims=(x.ndim - 1,), start_index_map=(x.ndim - 1,),
            operand_batching_dims=tuple(range(x.ndim - 1)),
            start_indices_batching_dims=tuple(range(x.ndim - 1)))
        return lax.gather(x, lax.expand_dims(index, (x.ndim - 1,)), numbers, (1,) * x.ndim)

    if n == 0:
        return filled_as(x.shape[:-1], dtype.type(np.nan))
    low_value, high_value = element(low), element(high)
    if method == "lower":
        return low_value
    if method == "higher":
        return high_value
    if method == "midpoint":
        return mul_p.bind(add_p.bind(low_value, high_value), dtype.type(0.5))
    if method == "nearest":
        near = lax.le(high_weight, dtype.type(0.5))
        near = near if shape_of(near) == low_value.shape or not shape_of(near) else to_shape(
            near, low_value.shape)
        return select_of(near, high_value, low_value)
    return add_p.bind(mul_p.bind(low_value, low_weight), mul_p.bind(high_value, high_weight))


def quantile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False, *,
             weights=None):
    """The values below which shares q (between 0 and 1) of the elements lie."""
    _unsupported("quantile", out, overwrite_input)
    check_arraylike("quantile", a, q)
    return _quantile("quantile", a, q, axis, method, keepdims, weights, False)


def nanquantile(a, q, axis=None, out=None, overwrite_input=False, method="linear",
                keepdims=False, *, weights=None):
    """As `quantile`, NaN left out."""
    _unsupported("nanquantile", out, overwrite_input)
    check_arraylike("nanquantile", a, q)
    return _quantile("nanquantile", a, q, axis, method, keepdims, weights, True)


def _unsupported(name: str, out: Any, overwrite: Any) -> None:
    if overwrite or out is not None:
        raise ValueError(f"jax.numpy.{name} does not support overwrite_input=True or out != None")


def percentile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False,
               *, weights=None, out_sharding=None):
    """As `quantile`, shares in percent."""
    _unsupported("percentile", out, overwrite_input)
    check_arraylike("percentile", a, q)
    (q,) = promote_dtypes_inexact(q)
    share = div_p.bind(as_array(q), convert(100, dtype_name(q)))
    result = _quantile("percentile", a, share, axis, method, keepdims, weights, False)
    if out_sharding is not None:
        result = reshard_p.bind(result, dst_sharding=output_sharding(
            out_sharding, "percentile", result.ndim))
    return result


def nanpercentile(a, q, axis=None, out=None, overwrite_input=False, method="linear",
                  keepdims=False, *, weights=None):
    """As `percentile`, NaN left out."""
    _unsupported("nanpercentile", out, overwrite_input)
    check_arraylike("nanpercentile", a, q)
    (q,) = promote_dtypes_inexact(q)
    share = div_p.bind(as_array(q), convert(100, dtype_name(q)))
    return _quantile("nanpercentile", a, share, axis, method, keepdims, weights, True)


def median(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    """The middle element, or the mean of the two in the middle."""
    _unsupported("median", out, overwrite_input)
    check_arraylike("median", a)
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, None, False)


def nanmedian(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    """As `median`, NaN left out."""
    _unsupported("nanmedian", out, overwrite_input)
    check_arraylike("nanmedian", a)
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, None, True)


# -- covariance ------------------------------------------------------------------------------------

def cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, dtype=None):
    """Covariances of variables (rows, or columns if not rowvar) over observations."""
    check_arraylike("cov", m, *(() if y is None else (y,)))
    operands = [m] if y is None else [m, y]
    operands = promote_dtypes_inexact(*operands)
    if dtype is not None:
        operands = [convert(x, user_dtype(dtype, "cov")) for x in operands]
    if any(len(shape_of(x)) > 2 for x in operands):
        raise ValueError("m has more than 2 dimensions")
    rows = []
    for x in operands:
        x = as_array(x)
        x = lax.expand_dims(x, tuple(range(2 - x.ndim))) if x.ndim < 2 else x
        if not rowvar and x.shape[0] != 1:
            x = lax.transpose(x, (1, 0))
        rows.append(x)
    x = rows[0] if y is None else concatenate(rows, 0)
    if ddof is None:
        ddof = 0 if bias else 1
    weights = None
    for w, name, whole in ((fweights, "fweights", True), (aweights, "aweights", False)):
        if w is None:
            continue
        check_arraylike("cov", w)
        if len(shape_of(w)) > 1:
            raise RuntimeError(f"cannot handle multidimensional {name}")
        if shape_of(w)[0] != x.shape[1]:
            raise RuntimeError(f"incompatible numbers of samples and {name}")
        if whole and LEVEL[dtype_name(w)] > 1:
            raise TypeError("fweights must be integer.")
        w = convert(w, x.dtype)
        weights = w if weights is None else mul_p.bind(weights, w)
    average, total = moments.average(x, axis=1, weights=weights, returned=True)
    total = lax.index_in_dim(total, 0, 0, keepdims=False)
    x = sub_p.bind(x, to_shape(lax.expand_dims(average, (1,)), x.shape))
    factor: Any
    if weights is None:
        factor = convert(x.shape[1] - ddof, x.dtype)
    elif ddof == 0:
        factor = total
    elif aweights is None:
        factor = sub_p.bind(total, convert(ddof, x.dtype))
    else:
        square = reductions.sum(mul_p.bind(weights, convert(aweights, x.dtype)))
        factor = sub_p.bind(total, div_p.bind(mul_p.bind(convert(ddof, x.dtype), square), total))
    right = x if weights is None else mul_p.bind(
        x, to_shape(lax.expand_dims(as_array(weights), (0,)), x.shape))
    out = div_p.bind(dot(x, conjugate(lax.transpose(right, (1, 0)))), factor)
    return lax.reshape(out, ()) if out.shape == (1, 1) else out


def corrcoef(x, y=None, rowvar=True, dtype=None):
    """Correlations of variables: covariances divided by the standard deviations."""
    check_arraylike("corrcoef", x, *(() if y is None else (y,)))
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return div_p.bind(c, c)
    deviations = sqrt(real(diag(c)))
    c = div_p.bind(c, convert(lax.broadcast_in_dim(deviations, c.shape, (0,)), c.dtype))
    c = div_p.bind(c, convert(lax.broadcast_in_dim(deviations, c.shape, (1,)), c.dtype))
    if LEVEL[c.dtype] == 3:
        return complex_p.bind(clip(real(c), -1, 1), clip(imag(c), -1, 1))
    return clip(c, -1, 1)


# -- counts ----------------------------------------------------------------------------------------
