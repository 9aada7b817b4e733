"""Sums and products along a dimension: cumsum, cumprod, diff, trapezoid.

The dimension must be unsharded; without `axis`, the whole array.
"""
from __future__ import annotations

import math
import operator
from typing import Any

from ....ir.diagnostics.diagnostic import fail
from ....ir.diagnostics.errors import ShardingTypeError
from ....ir.op import Op
from ....ir.ops.derivatives import slice_along
from ....ir.ops.elementwise.arithmetic import add_p, mul_p, sub_p
from ....ir.ops.movement.slicing import slice_p
from ....ir.ops.reductions.cumulative import cumprod_p, cumsum_p
from ....ir.values.typeof import typeof
from ... import lax, sharding_notes
from ...lax.creation import filled_as
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import (
    available,
    check_arraylike,
    convert,
    dtype_name,
    narrowed,
    promote_dtypes,
    promote_dtypes_inexact,
    user_dtype,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import BOOL, LEVEL, int_default
from ...operands.shape_arguments import canonical_axis
from ...staging.constants import as_array
from ...staging.memoized import memoized
from ..elementwise.logic import isnan, not_equal
from ..elementwise.two_operands import multiply_function, subtract_function
from . import reduce as reductions
from .reduce import no_out, promoted_integer

__all__ = [
    "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diff", "ediff1d", "nancumprod",
    "nancumsum", "trapezoid",
]


def _cumulative(name: str, op: Op, a: Any, axis: Any, dtype: Any, out: Any,
                fill_nan: int | None = None, promote: bool = False) -> Any:
    """`cumsum` and its like: checks, dtypes, then `op`. fill_nan: what NaN counts as. promote:
    whether narrow integers are widened.
    """
    check_arraylike(name, a)
    no_out(name, out)
    if dtype is not None:
        dtype = user_dtype(dtype, name)
    x = as_array(a)
    if axis is None:
        aval = typeof(x)
        if any(aval.entries):
            fail(ShardingTypeError,
                 f"The input should be fully replicated when axis is not specified to {name}. Got "
                 f"input type={aval.str_short()}", code="sharded-scan",
                 help="pass `axis`, or gather the array first, with `reshard`")
        x, axis = lax.reshape(x, (math.prod(shape_of(x)),)), 0
    axis = canonical_axis(axis, len(shape_of(x)))
    if fill_nan is not None and LEVEL[dtype_name(x)] >= 2:
        x = select_of(isnan(x), convert(x, dtype_name(x)), convert(fill_nan, dtype_name(x)))
    own = available(dtype_name(x))
    if dtype is None:
        dtype = promoted_integer(own) if promote else (int_default() if own == BOOL else own)
    if dtype == BOOL:
        x = convert(convert(x, BOOL), int_default())
        return convert(op.bind(x, axis=axis, reverse=False), BOOL)
    return op.bind(convert(x, dtype), axis=axis, reverse=False)


@sharding_notes.ordered
@memoized
def cumsum(a, axis=None, dtype=None, out=None):
    """The sums of all elements up to each, along the dimension `axis`; the shape stays.

    axis: None flattens `a` first. dtype: of the result; bool and narrow integers give int32.

    >>> jnp.cumsum(jnp.array([[1, 2, 3], [4, 5, 6]]), axis=1)
    Array([[ 1,  3,  6],
           [ 4,  9, 15]], dtype=int32)
    """
    return _cumulative("cumsum", cumsum_p, a, axis, dtype, out)


@sharding_notes.ordered
@memoized
def cumprod(a, axis=None, dtype=None, out=None):
    """The products of all elements up to each, along the dimension `axis`; the shape stays.

    axis: None flattens `a` first. dtype: of the result; bool and narrow integers give int32.

    >>> jnp.cumprod(jnp.array([1, 2, 3, 4]))
    Array([ 1,  2,  6, 24], dtype=int32)
    """
    return _cumulative("cumprod", cumprod_p, a, axis, dtype, out)


@sharding_notes.ordered
def nancumsum(a, axis=None, dtype=None, out=None):
    """The sums of all elements up to each, as in `cumsum`, with NaN counting as 0."""
    return _cumulative("nancumsum", cumsum_p, a, axis, dtype, out, 0)


@sharding_notes.ordered
def nancumprod(a, axis=None, dtype=None, out=None):
    """The products of all elements up to each, as in `cumprod`, with NaN counting as 1."""
    return _cumulative("nancumprod", cumprod_p, a, axis, dtype, out, 1)


def _with_initial(name: str, op: Op, x: Any, axis: Any, dtype: Any, include: bool, start: int
                  ) -> Any:
    """`cumulative_sum` and `cumulative_prod`; with `include`, the neutral element comes first."""
    check_arraylike(name, x)
    shape = shape_of(x)
    if axis is None:
        if len(shape) > 1:
            raise ValueError(f"The input array has rank {len(shape)}, however axis was not set to "
                             "an explicit value. The axis argument is only optional for "
                             "one-dimensional arrays.")
        axis = 0
    if not shape:
        raise ValueError("The input must be non-scalar to take a cumulative sum, however a scalar "
                         "value or scalar array was given.")
    axis = canonical_axis(axis, len(shape))
    out = _cumulative(name, op, x, axis, dtype, None, promote=op is cumsum_p)
    if not include:
        return out
    first = filled_as((*shape[:axis], 1, *shape[axis + 1:]), convert(start, dtype_name(out)))
    return lax.concatenate([first, out], axis)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """Sums of all elements up to each; with the 0 in front, if asked for."""
    return _with_initial("cumulative_sum", cumsum_p, x, axis, dtype, include_initial, 0)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """Products of all elements up to each; with the 1 in front, if asked for."""
    return _with_initial("cumulative_prod", cumprod_p, x, axis, dtype, include_initial, 1)


# -- differences -----------------------------------------------------------------------------------

@sharding_notes.moved
@memoized
def diff(a, n=1, axis=-1, prepend=None, append=None):
    """The differences of neighbours along the dimension `axis`, which gets shorter by `n`.

    n: how often differences are taken. prepend, append: values to put before and after first.

    >>> jnp.diff(jnp.array([1, 4, 9, 16]))
    Array([3, 5, 7], dtype=int32)
    """
    check_arraylike("diff", a)
    a = as_array(a)
    n = operator.index(n)
    axis_index = operator.index(axis)
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if not a.ndim:
        raise ValueError(f"diff requires input that is at least one dimensional; got {a}")
    axis_index = canonical_axis(axis_index, a.ndim)
    parts = [a]
    for extra, place in ((prepend, 0), (append, None)):
        if extra is None:
            continue
        extra = as_array(extra)
        if not extra.ndim:
            shape = list(a.shape)
            shape[axis_index] = 1
            extra = lax.broadcast_in_dim(extra, tuple(shape), ())
        parts.insert(0, extra) if place == 0 else parts.append(extra)
    if len(parts) > 1:
        target = promote_dtypes(*parts)
        a = lax.concatenate(target, axis_index)
    op = not_equal if dtype_name(a) == BOOL else subtract_function
    for _ in range(n):
        size = a.shape[axis_index]
        upper = _between(a, axis_index, 1, size)
        lower = _between(a, axis_index, 0, max(size - 1, 0))
        a = op(upper, lower)
    return a


def _between(a: Any, axis: int, start: int, stop: int) -> Any:
    return slice_p.bind(a, **slice_along(a.shape, axis, min(start, a.shape[axis]), stop))


def ediff1d(ary, to_end=None, to_begin=None):
    """Differences of neighbours in the flattened array, with values prepended and appended."""
    check_arraylike("ediff1d", ary)
    ary = as_array(ary)
    ary = lax.reshape(ary, (ary.size,)) if ary.ndim != 1 else ary
    out = sub_p.bind(_between(ary, 0, 1, ary.size), _between(ary, 0, 0, max(ary.size - 1, 0)))
    for extra, before in ((to_begin, True), (to_end, False)):
        if extra is not None:
            check_arraylike("ediff1d", extra)
            extra = convert(as_array(extra), dtype_name(out))
            extra = lax.reshape(extra, (extra.size,))
            out = lax.concatenate([extra, out] if before else [out, extra], 0)
    return out


def trapezoid(y, x=None, dx=1.0, axis=-1):
    """Integral by the trapezoidal rule along a dimension, at points x or with steps dx."""
    check_arraylike("trapezoid", y)
    if x is None:
        (y,) = promote_dtypes_inexact(narrowed(y))
        y = as_array(y)
        if shape_of(dx):                    # steps of their own, along some dimensions
            steps = as_array(dx)
            steps = lax.expand_dims(steps, range(y.ndim - steps.ndim))
            steps = lax_moveaxis(steps, axis)
            y = lax_moveaxis(y, axis)
            if steps.shape[-1] != 1:
                return _integral(y, steps)
            dx = lax.squeeze(steps, (steps.ndim - 1,))
        else:
            y = lax_moveaxis(y, axis)
        total = reductions.sum(y, axis=-1)
        first = lax.index_in_dim(y, 0, -1, keepdims=False)
        last = lax.index_in_dim(y, -1, -1, keepdims=False)
        half = mul_p.bind(convert(0.5, dtype_name(y)), add_p.bind(first, last))
        total = sub_p.bind(total, half)
        return multiply_function(dx, total)
    check_arraylike("trapezoid", x)
    y, x = promote_dtypes_inexact(y, x)
    y, x = as_array(y), as_array(x)
    if x.ndim == 1:
        steps = diff(x)
        y = lax_moveaxis(y, axis)
    else:
        steps = lax_moveaxis(diff(x, axis=axis), axis)
        y = lax_moveaxis(y, axis)
    return _integral(y, steps)


def _integral(y: Any, steps: Any) -> Any:
    """By the trapezoidal rule along the last dimension."""
    pairs = add_p.bind(_between(y, y.ndim - 1, 1, y.shape[-1]),
                       _between(y, y.ndim - 1, 0, max(y.shape[-1] - 1, 0)))
    total = reductions.sum(multiply_function(steps, pairs), axis=-1)
    return mul_p.bind(convert(0.5, dtype_name(total)), total)


def lax_moveaxis(y: Any, axis: int) -> Any:
    """y with one dimension moved to the end."""
    axis = canonical_axis(axis, y.ndim)
    return lax.transpose(y, [*(d for d in range(y.ndim) if d != axis), axis])


