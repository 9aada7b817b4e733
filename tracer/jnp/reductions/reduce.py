"""Reductions of jnp: sum, mean, max, var, argmax and their like.

Sums of small integers are taken in 32 bits, sums of 16-bit floats in float32 and rounded once.
A sharded dimension may be reduced: it disappears from the type, and the program gets its all-reduce
from the partitioner.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.dtypes import issubdtype, to_inexact_dtype
from ....ir.op import Op
from ....ir.ops.elementwise.arithmetic import add_p, max_p, min_p, mul_p, sub_p
from ....ir.ops.elementwise.bitwise import and_p, or_p, xor_p
from ....ir.ops.elementwise.comparison import ne_p
from ....ir.ops.reductions.positions import argmax_p, argmin_p
from ....ir.ops.reductions.reduction import (
    reduce_and_p,
    reduce_max_p,
    reduce_min_p,
    reduce_or_p,
    reduce_prod_p,
    reduce_sum_p,
    reduce_xor_p,
)
from ....ir.support.named_tuple import NamedTuple
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...lax.reduction import extreme
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import (
    available,
    check_arraylike,
    convert,
    dtype_name,
    literal_like,
    user_dtype,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import BOOL, int_default
from ...operands.shape_arguments import canonical_axes, canonical_axis
from ...staging.constants import as_array
from ...staging.memoized import memoized

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "max", "min", "prod", "ptp",
    "sum",
]
HALF_FLOATS = frozenset((np.dtype("float16"), to_inexact_dtype("bfloat16")))
FLOAT32 = np.dtype("float32")


def reduction_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axis argument of a reduction as dimensions; None means all."""
    if axis is None:
        return tuple(range(ndim))
    return canonical_axes(axis, ndim)


def no_out(name: str, out: Any) -> None:
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported.")


def check_where(name: str, where: Any) -> None:
    """Raises ValueError for a mask that is not boolean."""
    if where is not None:
        check_arraylike(name, where)
        if dtype_name(where) != BOOL:
            raise ValueError(f"jnp.{name}: where must be None or a boolean array; got "
                             f"where.dtype=dtype({str(dtype_name(where))!r}).")


def check_arguments(name: str, a: Any, out: Any, where: Any = None) -> None:
    """Raises for what is no array, for `out`, and for a mask that is not boolean."""
    check_arraylike(name, a)
    no_out(name, out)
    check_where(name, where)


def masked(x: Any, where: Any, neutral: Any) -> Any:
    """x where the mask is true, else a neutral scalar of its dtype."""
    if where is None:
        return x
    return select_of(where, convert(neutral, dtype_name(x)), x)


def with_kept_dims(result: Any, ndim: int, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The result with the reduced dimensions put back as size 1, if asked for."""
    if not keepdims:
        return result
    return lax.expand_dims(result, axes) if axes else result


# Sums and products of booleans as such.
_OF_BOOLS = {reduce_sum_p: (reduce_or_p, or_p), reduce_prod_p: (reduce_and_p, and_p)}


class _Reduction(NamedTuple):
    """What tells one reduction from another.

    neutral: dtype -> the scalar that changes nothing. combine: takes in `initial`. promote: small
    integers become 32-bit ones. upcast: 16-bit floats are reduced in float32. as_bool: of truth
    values. has_identity: without one, `where` and empty operands need `initial`.
    """
    name: str
    op: Op
    neutral: Callable[[np.dtype], Any]
    combine: Op | None = None
    promote: bool = False
    upcast: bool = False
    as_bool: bool = False
    has_identity: bool = True


def _reduce(how: _Reduction, a: Any, axis: Any, dtype: Any, out: Any, keepdims: bool,
            initial: Any, where: Any) -> Array:
    """The common frame of reductions; arguments are those of `sum`."""
    name, op, neutral, combine, promote, upcast, as_bool, has_identity = how
    no_out(name, out)
    check_where(name, where)
    if not isinstance(a, Array):
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
    result = available(own) if dtype is None else dtype
    if as_bool:
        result = BOOL
    elif dtype is None and promote:
        result = promoted_integer(result)
    elif dtype is None and result == BOOL and op in _OF_BOOLS:
        result = int_default()
    compute = FLOAT32 if upcast and result in HALF_FLOATS and dtype is None else result
    x = convert(a, compute)
    if compute == BOOL and op in _OF_BOOLS:
        op, combine = _OF_BOOLS[op]
    if where is not None:
        x = masked(x, where, neutral(compute))
    extra = {"out_sharding": None} if op is reduce_sum_p else {}
    x = op.bind(x, axes=axes, **extra)
    if initial is not None:
        if shape_of(initial):
            raise ValueError("initial value must be a scalar. Got array of shape "
                             f"{shape_of(initial)}")
        assert combine is not None
        x = combine.bind(convert(initial, compute), x)
    if keepdims:
        x = with_kept_dims(x, len(shape), axes, keepdims)
    return convert(x, result)


def _lowest(dtype: Any) -> Any:
    return extreme(dtype, False)


_SUM = _Reduction("sum", reduce_sum_p, lambda d: 0, add_p, promote=True, upcast=True)
_PROD = _Reduction("prod", reduce_prod_p, lambda d: 1, mul_p, promote=True, upcast=True)
_MAX = _Reduction("max", reduce_max_p, _lowest, max_p, has_identity=False)
_MIN = _Reduction("min", reduce_min_p, lambda d: extreme(d, True), min_p, has_identity=False)
_ALL = _Reduction("all", reduce_and_p, lambda d: True, as_bool=True)
_ANY = _Reduction("any", reduce_or_p, lambda d: False, as_bool=True)


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


@sharding_notes.reduction
def sum(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None,
        promote_integers=True):
    """The sum of the elements, over all dimensions or over those in `axis`.

    axis: None, an int, or a tuple of ints. keepdims: keep reduced dimensions, with size 1.
    dtype: of the result; by default bool and narrow integers give 32-bit integers. initial: a
    scalar to begin from. where: a mask; elements where it is false are left out.
    Raises ValueError for an axis out of bounds, and NotImplementedError for `out`.

    >>> x = jnp.arange(6.0).reshape(2, 3)
    >>> jnp.sum(x), jnp.sum(x, axis=0), jnp.sum(x, axis=1, keepdims=True).shape
    (Array(15., dtype=float32), Array([3., 5., 7.], dtype=float32), (2, 1))
    """
    return _reduce(_SUM if promote_integers else _SUM._replace(promote=False),
                   a, axis, dtype, out, keepdims, initial, where)


@sharding_notes.reduction
def prod(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None,
         promote_integers=True):
    """The product of the elements, over all dimensions or over those in `axis`.

    The arguments are those of `sum`; bool and narrow integers give 32-bit integers.

    >>> jnp.prod(jnp.array([[1, 2], [3, 4]]), axis=1)
    Array([ 2, 12], dtype=int32)
    """
    return _reduce(_PROD if promote_integers else _PROD._replace(promote=False),
                   a, axis, dtype, out, keepdims, initial, where)


@sharding_notes.reduction
def max(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """The greatest element, over all dimensions or over those in `axis`; NaN if there is one.

    axis: None, an int, or a tuple of ints. keepdims: keep reduced dimensions, with size 1.
    where: a mask, which needs `initial`. Raises ValueError where there are no elements and no
    `initial`.

    >>> jnp.max(jnp.array([[1, 5], [7, 2]]), axis=0)
    Array([7, 5], dtype=int32)
    """
    return _reduce(_MAX, a, axis, None, out, keepdims, initial, where)


@sharding_notes.reduction
def min(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """The least element, over all dimensions or over those in `axis`; NaN if there is one.

    axis: None, an int, or a tuple of ints. keepdims: keep reduced dimensions, with size 1.
    where: a mask, which needs `initial`. Raises ValueError where there are no elements and no
    `initial`.

    >>> jnp.min(jnp.array([[1, 5], [7, 2]]), axis=0)
    Array([1, 2], dtype=int32)
    """
    return _reduce(_MIN, a, axis, None, out, keepdims, initial, where)


@sharding_notes.reduction
def amax(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """Another name of `max`: the greatest element over all dimensions or those in `axis`."""
    return max(a, axis, out, keepdims, initial, where)


@sharding_notes.reduction
def amin(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """Another name of `min`: the least element over all dimensions or those in `axis`."""
    return min(a, axis, out, keepdims, initial, where)


@sharding_notes.reduction
def all(a, axis=None, out=None, keepdims=False, *, where=None):
    """Whether all elements are true (not zero), over all dimensions or over those in `axis`.

    where: a mask; elements where it is false are left out. Without elements the result is True.

    >>> jnp.all(jnp.array([[1, 0], [2, 3]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    return _reduce(_ALL, a, axis, None, out, keepdims, None, where)


@sharding_notes.reduction
def any(a, axis=None, out=None, keepdims=False, *, where=None):
    """Whether any element is true (not zero), over all dimensions or over those in `axis`.

    where: a mask; elements where it is false are left out. Without elements the result is False.

    >>> jnp.any(jnp.array([[1, 0], [0, 0]]), axis=1)
    Array([ True, False], dtype=bool)
    """
    return _reduce(_ANY, a, axis, None, out, keepdims, None, where)


def _bitwise_reduce(name: str, op: Op, combine: Op, start: int) -> Callable[..., Array]:
    how = _Reduction(name, op, lambda d: (d.type(bool(start)) if d == BOOL else
                                          np.array(start).astype(d)[()]), combine)

    def reduce(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
        return _reduce(how, a, axis, dtype, out, keepdims, initial, where)

    return reduce


reduce_bitwise_and = _bitwise_reduce("reduce_and", reduce_and_p, and_p, -1)
reduce_bitwise_or = _bitwise_reduce("reduce_or", reduce_or_p, or_p, 0)
reduce_bitwise_xor = _bitwise_reduce("reduce_xor", reduce_xor_p, xor_p, 0)


# -- positions -------------------------------------------------------------------------------------

def _arg_reduce(name: str, op: Op, a: Any, axis: Any, out: Any, keepdims: bool | None) -> Array:
    """The position of an extreme along an axis, or in the flattened array."""
    check_arguments(name, a, out)
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
    return with_kept_dims(result, len(shape), dims, bool(keepdims))


@sharding_notes.reduction
@memoized
def argmax(a, axis=None, out=None, keepdims=None):
    """The position of the greatest element along `axis`; the first, if there are several.

    axis: an int; None means the position in the flattened array. keepdims: keep the dimension,
    with size 1. Raises ValueError for a dimension of size 0.

    >>> jnp.argmax(jnp.array([[1, 5], [7, 2]]), axis=1)
    Array([1, 0], dtype=int32)
    """
    return _arg_reduce("argmax", argmax_p, a, axis, out, keepdims)


@sharding_notes.reduction
@memoized
def argmin(a, axis=None, out=None, keepdims=None):
    """The position of the least element along `axis`; the first, if there are several.

    axis: an int; None means the position in the flattened array. keepdims: keep the dimension,
    with size 1. Raises ValueError for a dimension of size 0.

    >>> jnp.argmin(jnp.array([[1, 5], [7, 2]]), axis=1)
    Array([0, 1], dtype=int32)
    """
    return _arg_reduce("argmin", argmin_p, a, axis, out, keepdims)


@sharding_notes.reduction
@memoized
def count_nonzero(a, axis=None, keepdims=False):
    """The number of elements that are not zero, over all dimensions or those in `axis`, as int32.

    >>> jnp.count_nonzero(jnp.array([[1, 0], [2, 3]]), axis=0)
    Array([2, 1], dtype=int32)
    """
    check_arraylike("count_nonzero", a)
    x = as_array(a)
    return sum(ne_p.bind(x, literal_like(0, x)), axis=axis, dtype=int_default(), keepdims=keepdims)


# -- moments ---------------------------------------------------------------------------------------


@sharding_notes.reduction
def ptp(a, axis=None, out=None, keepdims=False):
    """The greatest element less the least, over all dimensions or over those in `axis`.

    >>> jnp.ptp(jnp.array([[1, 5], [7, 2]]), axis=1)
    Array([4, 5], dtype=int32)
    """
    check_arguments("ptp", a, out)
    return sub_p.bind(max(a, axis=axis, keepdims=keepdims), min(a, axis=axis, keepdims=keepdims))
