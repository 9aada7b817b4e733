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
from ...ir.ops.arithmetic import add_p, max_p, min_p, mul_p, sub_p
from ...ir.ops.bitwise import and_p, or_p, xor_p
from ...ir.ops.comparison import ne_p
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
from .. import lax
from ..lax.reduction import extreme
from ..operands.broadcasting import select_of, to_type
from ..operands.dtype_promotion import check_arraylike, convert, dtype_name, shape_of, user_dtype
from ..operands.scalars import BOOL, int_default
from ..operands.shape_arguments import canonical_axes, canonical_axis
from ..staging.composed import composed
from ..staging.constants import as_array
from .elementwise import literal_like

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
    no_out(name, out)
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
    result = own if dtype is None else dtype
    if as_bool:
        result = BOOL
    elif dtype is None and promote:
        result = promoted_integer(own)
    compute = FLOAT32 if upcast and result in HALF_FLOATS and dtype is None else result
    x = convert(a, compute)
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
        x = with_kept(x, len(shape), axes, keepdims)
    return convert(x, result)


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
    no_out(name, out)
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


@composed
def argmax(a, axis=None, out=None, keepdims=None):
    """Position of the first maximum, in the flattened array or along a dimension."""
    return _arg_reduce("argmax", argmax_p, a, axis, out, keepdims)


@composed
def argmin(a, axis=None, out=None, keepdims=None):
    """Position of the first minimum, in the flattened array or along a dimension."""
    return _arg_reduce("argmin", argmin_p, a, axis, out, keepdims)


@composed
def count_nonzero(a, axis=None, keepdims=False):
    """Number of elements that differ from zero."""
    check_arraylike("count_nonzero", a)
    x = as_array(a)
    return sum(ne_p.bind(x, literal_like(0, x)), axis=axis, dtype=int_default(), keepdims=keepdims)


# -- moments ---------------------------------------------------------------------------------------


def ptp(a, axis=None, out=None, keepdims=False):
    """Maximum less minimum."""
    check_arraylike("ptp", a)
    no_out("ptp", out)
    return sub_p.bind(max(a, axis=axis, keepdims=keepdims), min(a, axis=axis, keepdims=keepdims))
