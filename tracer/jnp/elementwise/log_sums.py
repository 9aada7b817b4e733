"""Logarithms of sums and means of exponentials, without overflow."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.ops.elementwise.arithmetic import sub_p
from ... import lax, sharding_notes
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import convert, promote_args_inexact
from ...operands.rank_promotion import shape_of
from ...operands.scalars import LEVEL
from ...staging.constants import as_array
from ...staging.memoized import memoized
from ..indexing.searching import choose_where
from ..reductions import reduce as reductions
from ..reductions.reduce import reduction_axes
from .arithmetic import absolute, exp, log
from .logic import not_equal
from .two_operands import multiply_function, subtract_function


@sharding_notes.reduction
@memoized
def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False, where=None):
    """log(sum(b * exp(a))) over `axis`, without overflow.

    axis: an int, a tuple, or None for all dimensions. b: weights, 1 by default. return_sign: also
    the sign of the sum, whose absolute value is taken. where: a mask of the elements that count.

    >>> st.nn.logsumexp(jnp.array([1000.0, 1000.0])).round(1)
    Array(1000.7, dtype=float32)
    """
    if b is None:
        (x,) = promote_args_inexact("logsumexp", a)
        factor: Any = 1.0
    else:
        x, factor = promote_args_inexact("logsumexp", a, b)
        x = choose_where(not_equal(factor, 0.0), x, -np.inf)
    x = as_array(x)
    if where is not None:
        x = choose_where(where, x, 0)
    axes = reduction_axes(axis, x.ndim)
    real = lax.real(x) if LEVEL[x.dtype] == 3 else x
    top = reductions.max(real, axis=axes, keepdims=keepdims, where=where,
                         initial=np.asarray(-np.inf, real.dtype)[()])
    finite = lax.is_finite(top)
    top = lax.stop_gradient(select_of(finite, convert(0, top.dtype), top))
    shift = top if keepdims else (lax.expand_dims(top, axes) if axes else top)
    powers = exp(sub_p.bind(x, convert(shift, x.dtype)))
    if b is not None:
        powers = multiply_function(powers, factor)
    total = reductions.sum(powers, axis=axes, keepdims=keepdims, where=where)
    sign = lax.sign(total)
    if return_sign or LEVEL[total.dtype] < 3:
        total = absolute(total)
    out = lax.add(lax.log(total), convert(top, total.dtype))
    if return_sign:
        return out, sign
    if b is not None and LEVEL[out.dtype] < 3:
        negative = lax.lt(sign, convert(0, sign.dtype))
        out = select_of(negative, out, convert(np.nan, out.dtype))
    return out


@memoized
def logmeanexp(x, axis=None, where=None, keepdims=False):
    """log(mean(exp(x))) over all dimensions or those in `axis`, without overflow."""
    total: Any = logsumexp(x, axis=axis, where=where, keepdims=keepdims)
    if where is None:
        shape = shape_of(x)
        count: Any = convert(
            int(np.prod([shape[d] for d in reduction_axes(axis, len(shape))], dtype=int)),
            total.dtype)
    else:
        full = lax.broadcast_in_dim(as_array(where), shape_of(x), tuple(
            range(len(shape_of(x)) - len(shape_of(where)), len(shape_of(x)))))
        count = reductions.sum(convert(full, total.dtype), axis=axis, keepdims=keepdims)
    return subtract_function(total, log(count))
