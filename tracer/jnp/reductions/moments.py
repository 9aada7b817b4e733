"""Means and variances, plain or weighted; in float32 for 16-bit floats, rounded once."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....ir.ops.elementwise.arithmetic import div_p, mul_p, sub_p
from ....ir.ops.elementwise.comparison import gt_p
from ....ir.ops.elementwise.complex_parts import real_p
from ....ir.ops.elementwise.powers import sqrt_p, square_p
from ....ir.ops.movement.reshape import reshape_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...operands.broadcasting import select_of, to_type
from ...operands.dtype_promotion import (
    available,
    check_arraylike,
    convert,
    dtype_name,
    promote_dtypes,
    to_inexact,
    user_dtype,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import BOOL, LEVEL, int_default
from ...operands.shape_arguments import canonical_axes
from ...staging.memoized import memoized
from ..elementwise.arithmetic import real_dtype
from .reduce import (
    FLOAT32,
    HALF_FLOATS,
    check_arguments,
    check_where,
    no_out,
    promoted_integer,
    reduction_axes,
    sum,
)

__all__ = ["average", "mean", "std", "var"]


def _count(a: Any, axes: tuple[int, ...]) -> int | float:
    """A float where no default integer holds it: shapes may be larger than any memory."""
    shape = shape_of(a)
    count = math.prod([shape[d] for d in axes])
    return count if count < 2 ** 31 else float(count)


def _mean_count(a: Any, axis: Any, where: Any, dtype: Any, keepdims: bool) -> Any:
    """The number of elements of a mean, as a scalar or an array of dtype."""
    if where is None:
        return convert(_count(a, reduction_axes(axis, len(shape_of(a)))), dtype)
    full = to_type(convert(where, int_default()), shape_of(a))
    return sum(convert(full, dtype), axis=axis, dtype=dtype, keepdims=keepdims)


@sharding_notes.reduction
@memoized
def mean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=None):
    """The mean of the elements, over all dimensions or over those in `axis`.

    Integers give floats; 16-bit floats are added in float32. axis, dtype, keepdims, where: as in
    `sum`. The mean of no elements is NaN.

    >>> jnp.mean(jnp.array([[1, 2], [3, 6]]), axis=0)
    Array([2., 4.], dtype=float32)
    """
    if not isinstance(a, Array):
        check_arraylike("mean", a)
    no_out("mean", out)
    if dtype is None:
        result = to_inexact(promoted_integer(available(dtype_name(a))))
        if dtype_name(a) == BOOL:
            a = convert(a, int_default())
        compute = FLOAT32 if result in HALF_FLOATS else result
    else:
        result = compute = user_dtype(dtype, "mean")
    check_where("mean", where)
    count = _mean_count(a, axis, where, compute, keepdims)
    total = sum(convert(a, compute), axis=axis, dtype=compute, keepdims=keepdims, where=where)
    return convert(div_p.bind(total, count), result)


@sharding_notes.reduction
@memoized
def var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None,
        correction=None):
    """The variance over all dimensions or those in `axis`: the mean of |a - mean(a)|**2.

    ddof (or correction): what is taken off the number of elements before dividing by it. mean: the
    mean, if it is known (with dimensions kept). Complex numbers give a float.

    >>> jnp.var(jnp.array([1.0, 2.0, 3.0, 6.0]))
    Array(3.5, dtype=float32)
    """
    return _var("var", a, axis, dtype, out, ddof, keepdims, where, mean, correction)


_mean = mean


def _var(name: str, a: Any, axis: Any, dtype: Any, out: Any, ddof: Any, keepdims: bool,
         where: Any, mean: Any, correction: Any) -> Array:
    """The variance about `mean`, over the count less `ddof`; NaN where that is not positive."""
    check_arguments(name, a, out, where)
    if correction is not None:
        if ddof != 0:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        ddof = correction
    compute, result = var_dtypes(name, a, dtype)
    x = convert(a, compute)
    axes = reduction_axes(axis, len(shape_of(x)))
    if mean is None:
        mean = _mean(x, axis=axis, dtype=compute, keepdims=True, where=where)
    else:
        check_arraylike(name, mean)
        mean = convert(mean, compute)
    centered = sub_p.bind(x, mean)
    if LEVEL[compute] == 3:
        centered = real_p.bind(mul_p.bind(centered, lax.conj(centered)))
        parts = real_dtype(compute)
    else:
        centered = square_p.bind(centered)
        parts = compute
    if where is None:
        norm: Any = convert(_count(x, axes), parts)
    else:
        norm = sum(convert(to_type(convert(where, int_default()), shape_of(x)), parts),
                   axis=axis, dtype=parts, keepdims=keepdims)
    norm = sub_p.bind(norm, convert(ddof, parts)) if isinstance(norm, Array) or isinstance(
        ddof, Array) else parts.type(norm - convert(ddof, parts))
    total = sum(centered, axis=axis, dtype=parts, keepdims=keepdims, where=where)
    out = convert(div_p.bind(total, norm), result)
    positive = gt_p.bind(norm, parts.type(0)) if isinstance(norm, Array) else norm > 0
    if positive is True or (isinstance(positive, np.bool_) and positive):
        return out
    return select_of(positive, convert(np.nan, result), out)


def var_dtypes(name: str, a: Any, dtype: Any) -> tuple[Any, Any]:
    """The dtype in which a variance is computed, and that of the result."""
    own = available(dtype_name(a))
    if dtype is not None:
        dtype = user_dtype(dtype, name)
        if LEVEL[own] == 3 and LEVEL[dtype] != 3:
            raise ValueError(f"jax.numpy.{name} does not yet support real dtype parameters when "
                             "computing the variance of an array of complex values.")
        compute = dtype
        if LEVEL[dtype] < 2:
            raise ValueError(f"{name}: dtype must be a float or complex type, got {dtype}")
        return compute, dtype
    if LEVEL[own] < 2:
        return to_inexact(own), to_inexact(own)
    result = real_dtype(own)
    return (FLOAT32 if own in HALF_FLOATS else own), result


@sharding_notes.reduction
@memoized
def std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None,
        correction=None):
    """The standard deviation over all dimensions or those in `axis`: the square root of `var`.

    >>> jnp.std(jnp.array([[1.0, 3.0], [0.0, 8.0]]), axis=1)
    Array([1., 4.], dtype=float32)
    """
    return sqrt_p.bind(_var("std", a, axis, dtype, out, ddof, keepdims, where, mean, correction))


def average(a, axis=None, weights=None, returned=False, keepdims=False):
    """Mean with weights; with `returned`, also the sum of the weights."""
    if weights is None:
        check_arraylike("average", a)
        result = mean(a, axis=axis, keepdims=keepdims)
        if not returned:
            return result
        count = _count(a, reduction_axes(axis, len(shape_of(a))))
        return result, lax.full_like(result, count)
    a, weights = promote_dtypes_inexact_pair(a, weights)
    shape, wshape = shape_of(a), shape_of(weights)
    axes = None if axis is None else canonical_axes(axis, len(shape))
    if shape != wshape:
        if axis is None:
            raise ValueError("Axis must be specified when shapes of a and weights differ.")
        if len(wshape) == 1 and axes is not None and len(axes) == 1:
            if wshape[0] != shape[axes[0]]:
                raise ValueError("Length of weights not compatible with specified axis.")
        elif axes is None or wshape != tuple(shape[d] for d in axes):
            raise ValueError("Shape of weights must be consistent with shape of a along specified "
                             f"axis, got weights of shape {wshape}.")
        order = tuple(np.argsort(np.argsort(axes)))
        weights = lax.transpose(weights, np.argsort(axes)) if len(order) > 1 else weights
        wide = [n if d in axes else 1 for d, n in enumerate(shape)]
        weights = reshape_p.bind(weights, new_sizes=tuple(wide), dimensions=None, sharding=None)
    total = sum(weights, axis=axis, keepdims=keepdims)
    result = div_p.bind(sum(mul_p.bind(a, weights), axis=axis, keepdims=keepdims), total)
    if not returned:
        return result
    return result, to_type(total, shape_of(result))


def promote_dtypes_inexact_pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands in one inexact dtype, their ranks as they are."""
    check_arraylike("average", a, b)
    a, b = promote_dtypes(a, b)
    target = to_inexact(dtype_name(a))
    return convert(a, target), convert(b, target)
