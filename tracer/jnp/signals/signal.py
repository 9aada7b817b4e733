"""Convolution of vectors, interpolation, gradient, phase unwrapping."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.dtypes import finfo, issubdtype
from ....ir.ops.elementwise.arithmetic import add_p, div_p, mul_p, neg_p, sub_p
from ....ir.values.array import Array
from ... import lax
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    literal_like,
    narrowed,
    promote_dtypes_inexact,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import LEVEL
from ...operands.shape_arguments import canonical_axes, canonical_axis
from ...staging.constants import as_array
from ..elementwise.arithmetic import absolute
from ..elementwise.clipping import clip
from ..elementwise.complex_numbers import conj
from ..elementwise.division import remainder
from ..elementwise.logic import logical_and_function
from ..indexing.searching import where
from ..indexing.sorted_search import searchsorted
from ..indexing.sorting import argsort
from ..indexing.take import take
from ..manipulation.joining import concatenate
from ..matrices.contraction import contraction_dtype
from ..reductions.cumulative import cumsum, diff

__all__ = ["convolve", "correlate", "gradient", "interp", "unwrap"]

# -- convolution -----------------------------------------------------------------------------------


def _convolve(name: str, x: Any, y: Any, mode: str, op: str, precision: Any, preferred: Any
              ) -> Any:
    """`convolve` or `correlate` (`op`) of two vectors, as a convolution with the shorter as kernel.
    """
    check_arraylike(name, x, y)
    x, y = (as_array(v) for v in promote_dtypes_inexact(x, y))
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"{name}() only support 1-dimensional inputs.")
    if not x.size or not y.size:
        raise ValueError(f"{name}: inputs cannot be empty, got shapes {x.shape} and {y.shape}.")
    backward = False
    if op == "correlate":
        y = conj(y)
        if x.shape[0] < y.shape[0]:
            x, y = y, x
            backward = True
        kernel = y
    else:
        if x.shape[0] < y.shape[0]:
            x, y = y, x
        kernel = lax.rev(y, (0,))
    n = kernel.shape[0]
    if mode == "valid":
        padding = [(0, 0)]
    elif mode == "same":
        low = (n - 1) // 2 if backward else n // 2
        padding = [(low, n - low - 1)]
    elif mode == "full":
        padding = [(n - 1, n - 1)]
    else:
        raise ValueError("mode must be one of ['full', 'same', 'valid']")
    dtype, _ = contraction_dtype(preferred, x, kernel)
    out = lax.conv_general_dilated(
        lax.expand_dims(x, (0, 1)), lax.expand_dims(kernel, (0, 1)), window_strides=(1,),
        padding=padding, precision=precision,
        preferred_element_type=None if preferred is None else dtype)
    out = lax.squeeze(out, (0, 1))
    return lax.rev(out, (0,)) if backward else out


def convolve(a, v, mode="full", *, precision=None, preferred_element_type=None):
    """Convolution of two vectors. mode: "full", "same" (as long as the longer one) or "valid"."""
    return _convolve("convolve", a, v, mode, "convolve", precision, preferred_element_type)


def correlate(a, v, mode="valid", *, precision=None, preferred_element_type=None):
    """Cross-correlation of two vectors: convolution with the second one reversed, conjugated."""
    return _convolve("correlate", a, v, mode, "correlate", precision, preferred_element_type)


# -- interpolation ---------------------------------------------------------------------------------

def interp(x, xp, fp, left=None, right=None, period=None):
    """Values at x of the function that is linear between the points (xp, fp), xp ascending.

    left, right: values outside (by default those at the ends; "extrapolate" goes on linearly).
    period: x and xp are taken modulo it.
    """
    check_arraylike("interp", x, xp, fp)
    if shape_of(xp) != shape_of(fp) or len(shape_of(xp)) != 1:
        raise ValueError("xp and fp must be one-dimensional arrays of equal size")
    x, xp = (as_array(v) for v in promote_dtypes_inexact(x, xp))
    (fp,) = promote_dtypes_inexact(fp)
    fp = as_array(fp)
    if LEVEL[x.dtype] == 3:
        raise ValueError("jnp.interp: complex x values not supported.")
    if period is not None:
        if shape_of(period):
            raise ValueError(f"period must be a scalar; got {period}")
        period_value = literal_like(period, x)
        period_value = lax.abs(period_value)
        x, xp = remainder(x, period_value), remainder(xp, period_value)
        order = argsort(xp)
        xp, fp = take(xp, order), take(fp, order)
        first, last = (lax.slice_in_dim(v, 0, 1) for v in (xp, fp)), (
            lax.slice_in_dim(v, -1, None) for v in (xp, fp))
        (x0, f0), (x1, f1) = first, last
        xp = concatenate([sub_p.bind(x1, period_value), xp, add_p.bind(x0, period_value)])
        fp = concatenate([f1, fp, f0])
    n = xp.shape[0]
    i = clip(searchsorted(xp, x, side="right"), 1, n - 1)
    before = sub_p.bind(i, np.int32(1))
    f_high, f_low = take(fp, i, mode="clip"), take(fp, before, mode="clip")
    x_high, x_low = take(xp, i, mode="clip"), take(xp, before, mode="clip")
    df, dx, delta = sub_p.bind(f_high, f_low), sub_p.bind(x_high, x_low), sub_p.bind(x, x_low)
    tiny = literal_like(finfo(x.dtype).eps ** 2, x)
    flat = lax.le(absolute(dx), tiny)
    share = div_p.bind(delta, select_of(flat, dx, literal_like(1, x)))
    rise = mul_p.bind(convert(share, df.dtype, share.aval.weak_type), df)
    out = select_of(flat, add_p.bind(f_low, rise), f_low)
    if period is not None:
        return out
    for bound, at, op in ((left, 0, lax.lt), (right, n - 1, lax.gt)):
        if isinstance(bound, str):
            if bound != "extrapolate":
                raise ValueError("the only valid string value of `left`/`right` is 'extrapolate', "
                                 f"but got: {bound!r}")
            continue
        edge = lax.index_in_dim(xp, at, 0, keepdims=False)
        value = lax.index_in_dim(fp, at, 0, keepdims=False) if bound is None else bound
        out = where(op(x, edge), value, out)
    return out


def gradient(f, *varargs, axis=None, edge_order=None):
    """Derivatives by central differences along dimensions; a list if there are several.

    varargs: spacing, as one number, one for each dimension, or coordinates.
    """
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to jnp.gradient is not supported.")
    check_arraylike("gradient", f, *varargs)
    a, *spacing = promote_dtypes_inexact(*((f, *varargs) if varargs else (narrowed(f),)))
    a = as_array(a)
    axes = tuple(range(a.ndim)) if axis is None else canonical_axes(axis, a.ndim)
    if len(varargs) == 0:
        spacing = [1.0] * len(axes)
    elif len(varargs) == 1:
        spacing = spacing * len(axes)
    elif len(varargs) != len(axes):
        raise TypeError(f"Invalid number of spacing arguments {len(varargs)} for axis={axis}")
    if any(a.shape[d] < 2 for d in axes):
        raise ValueError("Shape of array too small to calculate a numerical gradient, at least 2 "
                         "elements are required.")
    out = [_gradient(a, h, d) for h, d in zip(spacing, axes, strict=True)]
    return out[0] if len(axes) == 1 else out


def _gradient(a: Any, h: Any, axis: int) -> Any:
    """Differences along `axis`: central ones inside, one-sided ones at the ends. h: the spacing,
    one number or the coordinates of the elements.
    """
    n = a.shape[axis]

    def part(start: int, stop: int) -> Any:
        return lax.slice_in_dim(a, start, stop, axis=axis)

    if len(shape_of(h)) == 1:
        steps = diff(h)
        if shape_of(h)[0] != n:
            raise ValueError("Spacing arrays must have the same length as the dimension of "
                             "gradient")
        left, right = lax.slice_in_dim(steps, 0, n - 2), lax.slice_in_dim(steps, 1, n - 1)
        total = lax.add(left, right)
        weights = [neg_p.bind(div_p.bind(right, mul_p.bind(left, total))),
                   div_p.bind(sub_p.bind(right, left), mul_p.bind(left, right)),
                   div_p.bind(left, mul_p.bind(right, total))]
        inner: Any = None
        for k, w in enumerate(weights):
            p = part(k, n - 2 + k)
            term = mul_p.bind(lax.broadcast_in_dim(w, p.shape, (axis,)), p)
            inner = term if inner is None else add_p.bind(inner, term)
        first_step = lax.index_in_dim(steps, 0, 0, keepdims=False)
        last_step = lax.index_in_dim(steps, -1, 0, keepdims=False)
    elif shape_of(h):
        raise ValueError("Spacing arguments must be scalars or 1D arrays")
    else:
        h = h if isinstance(h, Array) else literal_like(h, a)
        half = literal_like(0.5, a)
        inner = div_p.bind(mul_p.bind(sub_p.bind(part(2, n), part(0, n - 2)), half), h)
        first_step = last_step = h
    first = div_p.bind(sub_p.bind(part(1, 2), part(0, 1)), first_step)
    last = div_p.bind(sub_p.bind(part(n - 1, n), part(n - 2, n - 1)), last_step)
    return lax.concatenate([first, inner, last], axis)


def unwrap(p, discont=None, axis=-1, period=6.283185307179586):
    """p with multiples of the period added so that neighbours differ by less than half of it."""
    check_arraylike("unwrap", p)
    p = as_array(narrowed(p))
    if LEVEL[p.dtype] == 3:
        raise ValueError("jnp.unwrap does not support complex inputs.")
    if not p.shape:
        raise ValueError("diff requires input that is at least one dimensional")
    whole = issubdtype(p.dtype, np.integer) and float(period).is_integer() and not isinstance(
        period, float)
    if not whole:
        (p,) = promote_dtypes_inexact(p)
        p = as_array(p)
    axis = canonical_axis(axis, p.ndim)
    if not p.shape[axis]:
        return p
    width = convert(period, p.dtype)
    half = convert(period / 2 if not whole else period // 2, p.dtype)
    steps = diff(p, axis=axis)
    moved = sub_p.bind(remainder(add_p.bind(steps, half), width), half)
    ambiguous = logical_and_function(lax.eq(moved, neg_p.bind(as_array(half))),
                                     lax.gt(steps, convert(0, p.dtype)))
    moved = select_of(ambiguous, moved, half)
    correction = sub_p.bind(moved, steps)
    limit = half if discont is None else convert(discont, p.dtype)
    correction = select_of(lax.lt(absolute(steps), limit), correction, convert(0, p.dtype))
    tail = add_p.bind(lax.slice_in_dim(p, 1, p.shape[axis], axis=axis),
                      cumsum(correction, axis=axis))
    return lax.concatenate([lax.slice_in_dim(p, 0, 1, axis=axis), tail], axis)


