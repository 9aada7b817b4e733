"""Polynomials, given by their coefficients from the highest power down."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ....ir.dtypes import issubdtype
from ....ir.ops.elementwise.arithmetic import add_p, div_p, mul_p, neg_p, sub_p
from ....ir.support.lazy import lazy_import
from ... import lax
from ...lax.control.bodies import vary
from ...lax.creation import filled_as
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    literal_like,
    narrowed,
    promote_dtypes,
    promote_dtypes_inexact,
    strong,
)
from ...operands.rank_promotion import shape_of
from ...staging.constants import as_array, concrete_value
from ..creation.filled import ones, vander, zeros
from ..elementwise.arithmetic import sqrt
from ..elementwise.two_operands import add_function, multiply_function
from ..indexing.indexed_update import IndexUpdateRef
from ..manipulation.diagonals import diag
from ..manipulation.joining import concatenate
from ..manipulation.rearrange import trim_zeros
from ..manipulation.shaping import atleast_1d, broadcast_to
from ..matrices.contraction import dot, outer
from ..reductions.reduce import sum as sum_of
from .signal import convolve

__all__ = [
    "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval",
    "roots",
]
linalg = lazy_import("..linalg", __package__)


def poly(seq_of_zeros):
    """The polynomial with these zeros, or the characteristic polynomial of a matrix."""
    check_arraylike("poly", seq_of_zeros)
    (x,) = promote_dtypes_inexact(seq_of_zeros)
    x = atleast_1d(x)
    if x.ndim == 2:
        if x.shape[0] != x.shape[1]:
            raise ValueError("input must be 1d or non-empty square 2d array.")
        x = linalg.eigvals(x)
    elif x.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    out = ones((1,) if x.size else (), x.dtype)
    for i in range(x.shape[0]):
        last = neg_p.bind(lax.slice_in_dim(x, i, i + 1)) * out
        out = concatenate([out[:1], out[1:] + last[:-1], last[-1:]])
    return out


def _sum(a1: Any, a2: Any, sign: int) -> Any:
    """The sum (or, with sign -1, the difference) of coefficients, aligned at the lowest power."""
    a, b = (as_array(v) for v in promote_dtypes(a1, a2))
    n = max(a.shape[0], b.shape[0])
    longer = a if a.shape[0] == n else b

    def aligned(v: Any) -> Any:
        """With the rank of the longer one, and zeros before its first row."""
        if v is longer:
            return v
        v = broadcast_to(v, (v.shape[0], *longer.shape[1:]))
        low = [(n - v.shape[0], 0, 0)] + [(0, 0, 0)] * (v.ndim - 1)
        return lax.pad(v, literal_like(0, v), low)

    a, b = aligned(a), aligned(b)
    return add_p.bind(a, b) if sign > 0 else sub_p.bind(a, b)


def polyadd(a1, a2):
    """The sum of two polynomials, given by their coefficients, highest power first."""
    check_arraylike("polyadd", a1, a2)
    return _sum(a1, a2, 1)


def polysub(a1, a2):
    """The difference of two polynomials, given by their coefficients, highest power first."""
    check_arraylike("polysub", a1, a2)
    return _sum(a1, a2, -1)


def polymul(a1, a2, *, trim_leading_zeros=False):
    """The product of two polynomials, given by their coefficients, highest power first."""
    check_arraylike("polymul", a1, a2)
    a, b = promote_dtypes_inexact(a1, a2)
    if trim_leading_zeros and (len(shape_of(a)) and len(shape_of(b))):
        a, b = trim_zeros(a, trim="f"), trim_zeros(b, trim="f")
    a, b = as_array(a), as_array(b)
    if not a.size:
        a = zeros((1,), a.dtype)
    if not b.size:
        b = zeros((1,), b.dtype)
    return convolve(a, b, mode="full")


def polydiv(u, v, *, trim_leading_zeros=False):
    """Quotient and remainder of two polynomials, given by their coefficients, highest power first.
    """
    check_arraylike("polydiv", u, v)
    u, v = (as_array(x) for x in promote_dtypes_inexact(u, v))
    m, n = u.shape[0] - 1, v.shape[0] - 1
    count = max(m - n + 1, 1)
    quotient = zeros((count,), u.dtype)
    head = lax.index_in_dim(v, 0, 0, keepdims=False)
    for k in range(max(m - n + 1, 0)):
        digit = div_p.bind(lax.index_in_dim(u, k, 0, keepdims=False), head)
        quotient = IndexUpdateRef(quotient, k).set(digit)
        u = IndexUpdateRef(u, slice(k, k + n + 1)).add(neg_p.bind(mul_p.bind(
            lax.broadcast_in_dim(digit, v.shape, ()), v)))
    if trim_leading_zeros:
        u = trim_zeros(u, trim="f")
    return quotient, u


def polyval(p, x, *, unroll=16):
    """The value at x of the polynomial of coefficients p, highest power first (Horner's scheme)."""
    check_arraylike("polyval", p, x)
    p, x = map(as_array, promote_dtypes(p, x))
    axes, tail = p.aval.varying | x.aval.varying, p.shape[1:]
    shape = lax.broadcast_shapes(tail, x.shape)
    start = vary(filled_as(shape, convert(0, x.dtype)), axes)

    def step(y: Any, c: Any) -> tuple[Any, None]:
        return add_function(multiply_function(y, x), c), None

    return lax.scan(step, start, p, unroll=unroll)[0]


def polyder(p, m=1):
    """The m-th derivative of a polynomial, given by its coefficients, highest power first."""
    check_arraylike("polyder", p)
    m = operator.index(m)
    (p,) = promote_dtypes_inexact(narrowed(p))
    p = as_array(p)
    if m < 0:
        raise ValueError("Order of derivative must be positive")
    if m == 0:
        return p
    n = p.shape[0]
    factors = np.ones(max(n - m, 0))
    for k in range(m):
        factors *= np.arange(n - 1 - k, m - 1 - k, -1)[:len(factors)]
    return mul_p.bind(lax.slice_in_dim(p, 0, max(n - m, 0)), factors.astype(p.dtype))


def polyint(p, m=1, k=None):
    """The m-th integral of a polynomial, with integration constants k."""
    m = operator.index(m)
    constants = 0 if k is None else k
    check_arraylike("polyint", p, constants)
    p, constants = (as_array(v) for v in promote_dtypes_inexact(p, constants))
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    constants = atleast_1d(constants)
    if constants.shape[0] == 1:
        constants = lax.broadcast_in_dim(lax.squeeze(constants, (0,)), (m,), ())
    if constants.shape != (m,):
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or m.")
    # x**e comes from the m-th derivative, divided by e (e - 1) ... as far as these are above 1.
    powers = np.arange(p.shape[0] + m)[::-1]
    divisors = np.maximum(1, powers - np.arange(m)[:, None]).prod(axis=0).astype(p.dtype)
    return div_p.bind(strong(concatenate([p, constants])), divisors)


def polyfit(x, y, deg, rcond=None, full=False, w=None, cov=False):
    """The polynomial of a degree with the least squared error at points x with values y."""
    if w is None:
        check_arraylike("polyfit", x, y)
    else:
        check_arraylike("polyfit", x, y, w)
    order = operator.index(deg) + 1
    x, y = (as_array(v) for v in promote_dtypes_inexact(x, y))
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if not x.size:
        raise TypeError("expected non-empty vector for x")
    if y.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")
    if rcond is None:
        rcond = x.shape[0] * float(np.finfo(np.zeros(0, x.dtype).real.dtype).eps)
    left = vander(x, order)
    if w is not None:
        (w,) = promote_dtypes_inexact(w)
        w = convert(as_array(w), x.dtype)
        if w.ndim != 1:
            raise TypeError("expected a 1-d array for weights")
        if w.shape[0] != y.shape[0]:
            raise TypeError("expected w and y to have the same length")
        left = mul_p.bind(left, lax.broadcast_in_dim(w, left.shape, (0,)))
        y = mul_p.bind(y, lax.broadcast_in_dim(w, y.shape, (0,)))
    scale = sqrt(sum_of(mul_p.bind(left, left), axis=0))
    left = div_p.bind(left, lax.broadcast_in_dim(scale, left.shape, (1,)))
    c, residuals, rank, s = linalg.lstsq(left, y, rcond)
    c = div_p.bind(c, lax.broadcast_in_dim(scale, c.shape, (0,)))
    if full:
        return c, residuals, rank, s, as_array(rcond)
    if not cov:
        return c
    inverse = linalg.inv(dot(lax.transpose(left, (1, 0)), left))
    return c, _covariance(div_p.bind(inverse, outer(scale, scale)), residuals, x, y, cov)


def _covariance(inverse: Any, residuals: Any, x: Any, y: Any, cov: Any) -> Any:
    """The covariance of the coefficients that `polyfit` finds for points (x, y).

    inverse: of the normal equations' matrix. cov: "unscaled" to leave the residuals out.
    """
    order = inverse.shape[0]
    if cov == "unscaled":
        factor: Any = convert(1, inverse.dtype)
    else:
        if x.shape[0] <= order:
            raise ValueError("the number of data points must exceed order to scale the "
                             "covariance matrix")
        factor = div_p.bind(residuals, convert(x.shape[0] - order, inverse.dtype))
        factor = lax.reshape(factor, ()) if y.ndim == 1 else factor
    if y.ndim == 1:
        return mul_p.bind(inverse, factor)
    wide = lax.broadcast_in_dim(inverse, (order, order, y.shape[1]), (0, 1))
    if shape_of(factor):
        factor = lax.broadcast_in_dim(factor, wide.shape, (2,))
    return mul_p.bind(wide, factor)


def roots(p, *, strip_zeros=True):
    """The zeros of a polynomial: eigenvalues of its companion matrix.

    strip_zeros: leading and trailing zero coefficients are removed first, which needs the values.
    """
    check_arraylike("roots", p)
    (p,) = promote_dtypes_inexact(p)
    p = atleast_1d(p)
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    trailing = 0
    if strip_zeros:
        value = concrete_value(p, "jnp.roots with strip_zeros=True")
        places = np.flatnonzero(value)
        if not len(places):
            return zeros((0,), _complex_of(p.dtype))
        trailing = len(value) - int(places[-1]) - 1
        p = lax.slice_in_dim(p, int(places[0]), int(places[-1]) + 1)
    n = p.shape[0]
    dtype = _complex_of(p.dtype)
    if n < 2:
        return zeros((trailing,), dtype)
    head = lax.index_in_dim(p, 0, 0, keepdims=False)
    row = neg_p.bind(div_p.bind(lax.slice_in_dim(p, 1, n), head))
    companion = diag(ones((n - 2,), p.dtype), -1)
    companion = IndexUpdateRef(companion, 0).set(row)
    out = convert(linalg.eigvals(companion), dtype)
    return concatenate([out, zeros((trailing,), dtype)]) if trailing else out


def _complex_of(dtype: Any) -> Any:
    return np.dtype("complex128") if dtype.itemsize == 8 and issubdtype(
        dtype, np.floating) or dtype == np.dtype("complex128") else np.dtype("complex64")


