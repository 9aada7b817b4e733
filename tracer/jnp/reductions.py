"""Reductions of jnp: sum, mean, max, var, argmax and their like.

Sums of small integers are taken in 32 bits, sums of 16-bit floats in float32 and rounded once.
A sharded dimension may be reduced: it disappears from the type, and the program gets its all-reduce
from the partitioner.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.array import Array
from ...ir.dtypes import issubdtype, to_inexact_dtype
from ...ir.op import Op
from ...ir.ops.arithmetic import add_p, div_p, max_p, min_p, mul_p, sub_p
from ...ir.ops.bitwise import and_p, or_p, xor_p
from ...ir.ops.comparison import gt_p, ne_p
from ...ir.ops.complex_parts import real_p
from ...ir.ops.powers import sqrt_p, square_p
from ...ir.ops.reduction import (
    argmax_p,
    argmin_p,
    reduce_and_p,
    reduce_max_p,
    reduce_min_p,
    reduce_or_p,
    reduce_prod_p,
    reduce_sum_p,
    reduce_xor_p,
)
from ...ir.ops.reshape import reshape_p
from .. import lax
from ..broadcasting import select_of, to_type
from ..constants import as_array
from ..dtype_promotion import (
    BOOL,
    LEVEL,
    canonical_axes,
    canonical_axis,
    check_arraylike,
    convert,
    dtype_name,
    int_default,
    promote_dtypes,
    shape_of,
    to_inexact,
    user_dtype,
)
from ..lax.reduction import extreme
from .elementwise import _literal, real_dtype

_HALF = frozenset(map(np.dtype, ("float16", to_inexact_dtype("bfloat16"))))
_F32 = np.dtype("float32")


def reduction_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axis argument of a reduction as dimensions; None means all."""
    if axis is None:
        return tuple(range(ndim))
    return canonical_axes(axis, ndim)


def _no_out(name: str, out: Any) -> None:
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported.")


def masked(x: Any, where: Any, neutral: Any) -> Any:
    """x where the mask is true, else a neutral scalar of its dtype."""
    if where is None:
        return x
    check_arraylike("where", where)
    if dtype_name(where) != BOOL:
        where = convert(where, BOOL)
    return select_of(where, convert(neutral, dtype_name(x)), x)


def to_shape(x: Any, shape: tuple[int, ...]) -> Any:
    """x broadcast to a shape, dimensions aligned at the end."""
    return to_type(x, shape)


def with_kept(result: Any, ndim: int, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The result with the reduced dimensions put back as size 1, if asked for."""
    if not keepdims:
        return result
    return lax.expand_dims(result, axes) if axes else result


def _reduce(name: str, op: Op, a: Any, axis: Any, dtype: Any, out: Any, keepdims: bool,
            initial: Any, where: Any, neutral: Any, *, promote: bool = False,
            upcast: bool = False, as_bool: bool = False, combine: Op | None = None,
            has_identity: bool = True) -> Array:
    """The common frame of reductions.

    neutral: scalar that changes nothing. promote: small integers become 32-bit ones. upcast:
    16-bit floats are reduced in float32. combine: how `initial` is taken in.
    """
    _no_out(name, out)
    check_arraylike(name, a)
    if dtype is not None:
        dtype = user_dtype(dtype, name)
    own = dtype_name(a)
    if initial is None and not has_identity and where is not None:
        raise ValueError(f"reduction operation {name} does not have an identity, so to use a where "
                         "mask one has to specify 'initial'")
    shape = shape_of(a)
    axes = reduction_axes(axis, len(shape))
    if initial is None and not has_identity and 0 in [shape[d] for d in axes]:
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    result = own if dtype is None else dtype
    if as_bool:
        result = BOOL
    elif dtype is None and promote:
        result = promoted_integer(own)
    compute = _F32 if upcast and result in _HALF and dtype is None else result
    x = convert(a, compute)
    x = masked(x, where, None if where is None else neutral(compute))
    extra = {"out_sharding": None} if op is reduce_sum_p else {}
    x = op.bind(x, axes=axes, **extra)
    if initial is not None:
        if shape_of(initial):
            raise ValueError("initial value must be a scalar. Got array of shape "
                             f"{shape_of(initial)}")
        assert combine is not None
        x = combine.bind(convert(initial, compute), x)
    return convert(with_kept(x, len(shape), axes, keepdims), result)


def promoted_integer(dtype: Any) -> Any:
    """The dtype of sums: bool and small signed integers become int32, unsigned ones uint32."""
    if dtype == BOOL:
        return int_default()
    if issubdtype(dtype, np.unsignedinteger):
        wide = np.dtype(f"uint{int_default().itemsize * 8}")
        return wide if dtype.itemsize < wide.itemsize else dtype
    if issubdtype(dtype, np.integer):
        return int_default() if dtype.itemsize < int_default().itemsize else dtype
    return dtype


def sum(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None,
        promote_integers=True):
    """Sum over dimensions (all of them for axis=None)."""
    return _reduce("sum", reduce_sum_p, a, axis, dtype, out, keepdims, initial, where,
                   lambda d: 0, promote=promote_integers, upcast=True, combine=add_p)


def prod(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None,
         promote_integers=True):
    """Product over dimensions."""
    return _reduce("prod", reduce_prod_p, a, axis, dtype, out, keepdims, initial, where,
                   lambda d: 1, promote=promote_integers, upcast=True, combine=mul_p)


def max(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """Maximum over dimensions; NaN if there is one."""
    return _reduce("max", reduce_max_p, a, axis, None, out, keepdims, initial, where,
                   _lowest, combine=max_p, has_identity=False)


def min(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """Minimum over dimensions; NaN if there is one."""
    return _reduce("min", reduce_min_p, a, axis, None, out, keepdims, initial, where,
                   lambda d: extreme(d, True), combine=min_p, has_identity=False)


def _lowest(dtype: Any) -> Any:
    return extreme(dtype, False)


def amax(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """Maximum over dimensions."""
    return max(a, axis, out, keepdims, initial, where)


def amin(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """Minimum over dimensions."""
    return min(a, axis, out, keepdims, initial, where)


def all(a, axis=None, out=None, keepdims=False, *, where=None):
    """Whether all elements differ from zero."""
    return _reduce("all", reduce_and_p, a, axis, None, out, keepdims, None, where,
                   lambda d: True, as_bool=True)


def any(a, axis=None, out=None, keepdims=False, *, where=None):
    """Whether an element differs from zero."""
    return _reduce("any", reduce_or_p, a, axis, None, out, keepdims, None, where,
                   lambda d: False, as_bool=True)


def _bitwise_reduce(name: str, op: Op, combine: Op, start: int) -> Any:
    def reduce(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
        return _reduce(name, op, a, axis, dtype, out, keepdims, initial, where,
                       lambda d: (d.type(bool(start)) if d == BOOL
                                  else np.array(start).astype(d)[()]), combine=combine)

    return reduce


def reduce_bitwise_and(a, axis=None, **kwargs):
    """Bitwise and over dimensions."""
    return _bitwise_reduce("reduce_and", reduce_and_p, and_p, -1)(a, axis, **kwargs)


def reduce_bitwise_or(a, axis=None, **kwargs):
    """Bitwise or over dimensions."""
    return _bitwise_reduce("reduce_or", reduce_or_p, or_p, 0)(a, axis, **kwargs)


def reduce_bitwise_xor(a, axis=None, **kwargs):
    """Bitwise exclusive or over dimensions."""
    return _bitwise_reduce("reduce_xor", reduce_xor_p, xor_p, 0)(a, axis, **kwargs)


# -- positions -------------------------------------------------------------------------------------

def _arg_reduce(name: str, op: Op, a: Any, axis: Any, out: Any, keepdims: bool | None) -> Array:
    check_arraylike(name, a)
    _no_out(name, out)
    shape = shape_of(a)
    if axis is None:
        dims = tuple(range(len(shape)))
        a, axis = lax.reshape(a, (math.prod(shape),)), 0
    else:
        axis = canonical_axis(axis, len(shape))
        dims = (axis,)
    if shape_of(a)[axis] == 0:
        raise ValueError(f"attempt to get {name} of an empty sequence")
    result = op.bind(a, axes=(axis,), index_dtype=int_default())
    return with_kept(result, len(shape), dims, bool(keepdims))


def argmax(a, axis=None, out=None, keepdims=None):
    """Position of the first maximum, in the flattened array or along a dimension."""
    return _arg_reduce("argmax", argmax_p, a, axis, out, keepdims)


def argmin(a, axis=None, out=None, keepdims=None):
    """Position of the first minimum, in the flattened array or along a dimension."""
    return _arg_reduce("argmin", argmin_p, a, axis, out, keepdims)


def count_nonzero(a, axis=None, keepdims=False):
    """Number of elements that differ from zero."""
    check_arraylike("count_nonzero", a)
    x = as_array(a)
    return sum(ne_p.bind(x, _literal(0, x)), axis=axis, dtype=int_default(), keepdims=keepdims)


# -- moments ---------------------------------------------------------------------------------------

def _count(a: Any, axes: tuple[int, ...]) -> int:
    shape = shape_of(a)
    return math.prod(shape[d] for d in axes)


def _mean_count(a: Any, axis: Any, where: Any, dtype: Any, keepdims: bool) -> Any:
    """The number of elements of a mean, as a scalar or an array of dtype."""
    if where is None:
        return convert(_count(a, reduction_axes(axis, len(shape_of(a)))), dtype)
    full = to_shape(convert(where, int_default()), shape_of(a))
    return sum(convert(full, dtype), axis=axis, dtype=dtype, keepdims=keepdims)


def mean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=None):
    """Mean over dimensions; integers give floats."""
    check_arraylike("mean", a)
    _no_out("mean", out)
    if dtype is None:
        result = to_inexact(promoted_integer(dtype_name(a)))
        if dtype_name(a) == BOOL:
            a = convert(a, int_default())
        compute = _F32 if result in _HALF else result
    else:
        result = compute = user_dtype(dtype, "mean")
    count = _mean_count(a, axis, where, compute, keepdims)
    total = sum(convert(a, compute), axis=axis, dtype=compute, keepdims=keepdims, where=where)
    return convert(div_p.bind(total, count), result)


def var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None,
        correction=None):
    """Variance over dimensions: the mean of |a - mean|**2, with count - ddof as divisor.

    mean: the mean, if it is known (with dimensions kept). correction: another name of ddof.
    """
    check_arraylike("var", a)
    _no_out("var", out)
    if correction is not None:
        if ddof != 0:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        ddof = correction
    return _var("var", a, axis, dtype, ddof, keepdims, where, mean)


_mean = mean


def _var(name: str, a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: bool, where: Any,
         mean: Any) -> Array:
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
        norm = sum(convert(to_shape(convert(where, int_default()), shape_of(x)), parts),
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
    own = dtype_name(a)
    if dtype is not None:
        dtype = user_dtype(dtype, name)
        if LEVEL[own] == 3 and LEVEL[dtype] != 3:
            raise ValueError(f"jax.numpy.{name} does not yet support real dtype parameters when "
                             "computing the variance of an array of complex values.")
        compute = dtype
        if LEVEL[dtype] < 2:
            raise ValueError(f"{name}: dtype must be a float or complex type, got {dtype}")
        return compute, real_dtype(dtype) if LEVEL[dtype] == 3 else dtype
    if LEVEL[own] < 2:
        return to_inexact(own), to_inexact(own)
    result = real_dtype(own)
    return (_F32 if own in _HALF else own), result


def std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None,
        correction=None):
    """Standard deviation over dimensions: the square root of `var`."""
    check_arraylike("std", a)
    _no_out("std", out)
    if correction is not None:
        if ddof != 0:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        ddof = correction
    return sqrt_p.bind(_var("std", a, axis, dtype, ddof, keepdims, where, mean))


def ptp(a, axis=None, out=None, keepdims=False):
    """Maximum less minimum."""
    check_arraylike("ptp", a)
    _no_out("ptp", out)
    return sub_p.bind(max(a, axis=axis, keepdims=keepdims), min(a, axis=axis, keepdims=keepdims))


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
    return result, to_shape(total, shape_of(result))


def promote_dtypes_inexact_pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands in one inexact dtype, their ranks as they are."""
    check_arraylike("average", a, b)
    a, b = promote_dtypes(a, b)
    target = to_inexact(dtype_name(a))
    return convert(a, target), convert(b, target)

