"""Relatives of erf and of the exponential integral, as in `jax.scipy.special`.

erfcx, dawsn and fresnel are values of the Faddeeva function w(z) = exp(-z**2) erfc(-i z), which is
a rational function to rounding (Weideman, "Computation of the complex error function", 1994); near
zero, where that would cancel, they are power series. expn and sici are series near zero and
continued fractions elsewhere (Abramowitz and Stegun, chapter 5).
"""
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ....ir.support.lazy import lazy_import
from ... import jnp, lax
from ...autodiff.custom.custom_jvp import custom_jvp
from ...operands.dtype_promotion import (
    dtype_name,
    promote_args_inexact,
    promote_dtypes_inexact,
    strong,
)
from ...operands.scalars import float_default
from .functions import LOG_SQRT_2PI, of_reals, where, widened

_special = lazy_import("scipy.special")

TERMS = 40              # of the rational function: exact to 1e-13
FRACTIONS = 60          # terms of a continued fraction


@functools.cache
def _weideman() -> tuple[float, tuple[float, ...]]:
    """The pole of the rational function, and the coefficients of its polynomial."""
    n, m = TERMS, 2 * TERMS
    pole = math.sqrt(n / math.sqrt(2))
    t = pole * np.tan(np.arange(-m + 1, m) * math.pi / m / 2)
    values = np.concatenate([[0.0], np.exp(-t * t) * (pole * pole + t * t)])
    found = np.fft.fft(np.fft.fftshift(values)).real / (2 * m)
    return pole, tuple(found[1:n + 1][::-1].tolist())


def _polynomial(coefficients: Any, z: Any) -> Any:
    """By Horner's rule, the highest power first."""
    total = jnp.zeros_like(z)
    for c in coefficients:
        total = total * z + c
    return total


def _upper(z: Any) -> Any:
    """w(z) for z with an imaginary part of at least zero."""
    pole, coefficients = _weideman()
    down = pole - 1j * z
    ratio = (pole + 1j * z) / down
    return (2 * _polynomial(coefficients, ratio) / down + 1 / math.sqrt(math.pi)) / down


def wofz(z):
    """The Faddeeva function of complex numbers, exp(-z**2) erfc(-i z), elementwise."""
    (z,) = promote_dtypes_inexact(jnp.asarray(z))
    z = z.astype(jnp.result_type(z, jnp.complex64))
    below = z.imag < 0
    found = _upper(where(below, -z, z))
    return where(below, 2 * jnp.exp(-jnp.square(where(below, z, 0))) - found, found)


@widened
def erfcx(x):
    """exp(x**2) erfc(x), elementwise, which does not underflow.

    >>> from shardtrace.scipy.special import erfcx
    >>> print(erfcx(100.0))
    0.005641614
    """
    (x,) = promote_args_inexact("erfcx", x)
    if jnp.iscomplexobj(x):
        return wofz(lax.complex(-x.imag, x.real))
    pole, coefficients = _weideman()
    size = lax.abs(x)
    down = pole + size
    ratio = where(jnp.isinf(size), -1.0, (pole - where(jnp.isinf(size), 0.0, size)) / down)
    found = (2 * _polynomial(coefficients, ratio) / down + 1 / math.sqrt(math.pi)) / down
    return where(x < 0, 2 * lax.exp(jnp.square(jnp.minimum(x, 0))) - found, found)


def _supported(x: Any) -> Any:
    """x, if it is real."""
    if jnp.iscomplexobj(x):
        raise TypeError(f"x.dtype={dtype_name(x)} is not supported, see docstring for supported "
                        "types: real ones.")
    return x


def _series(x: Any, least: float, terms: Any) -> Any:
    """sum_k terms[k] x**k where abs(x) is at most `least`, that of 0 elsewhere."""
    return _polynomial(reversed(terms), where(lax.abs(x) <= least, x, 0.0))


@widened
def dawsn(x):
    """Dawson's integral: exp(-x**2) times the integral of exp(t**2) from 0 to x, elementwise."""
    (x,) = of_reals("dawsn", x)
    terms, c = [], 1.0
    for k in range(22):
        terms.append(c)
        c *= -2 / (2 * k + 3)
    near = lax.abs(x) < 1
    far = where(near, 1.0, x)
    value = 0.5 * math.sqrt(math.pi) * _upper(lax.complex(far, jnp.zeros_like(far))).imag
    # The polynomial is a small difference at large x: what is left is the asymptotic series.
    square = 1 / (far * far)
    asymptotic = (1 + square * (0.5 + square * (0.75 + 1.875 * square))) / (2 * far)
    value = where(lax.abs(far) > 30, asymptotic, value)
    return where(near, x * _series(x * x, 1.0, terms), value)


@widened
def fresnel(x):
    """The Fresnel integrals (S, C) of sin(pi t**2 / 2) and cos(pi t**2 / 2) from 0 to x."""
    (x,) = promote_args_inexact("fresnel", x)
    size = lax.abs(x)
    near = size < 1
    powers = [(-1) ** k * (math.pi / 2) ** (2 * k) / math.factorial(2 * k) for k in range(12)]
    sines = [p * (math.pi / 2) / (2 * k + 1) / (4 * k + 3) for k, p in enumerate(powers)]
    cosines = [p / (4 * k + 1) for k, p in enumerate(powers)]
    fourth = jnp.square(jnp.square(size))
    small = (size * jnp.square(size) * _series(fourth, 1.0, sines),
             size * _series(fourth, 1.0, cosines))
    far = where(near | jnp.isinf(size), 1.0, size)
    # The phase, whole turns taken off: x**2 modulo 4.
    turns = lax.rem(far, 4.0 * jnp.ones_like(far))
    phase = 0.5 * math.pi * lax.rem(turns * turns + 2 * turns * (far - turns)
                                    + lax.rem(jnp.square(far - turns), 4.0 * jnp.ones_like(far)),
                                    4.0 * jnp.ones_like(far))
    angle = lax.complex(lax.cos(phase), lax.sin(phase))
    argument = 0.5 * math.sqrt(math.pi) * lax.complex(far, far)
    value = (0.5 + 0.5j) * (1 - angle * _upper(argument))
    sign = lax.sign(x)
    return tuple(sign * where(near, s, where(jnp.isinf(size), 0.5, v))
                 for s, v in zip(small, (value.imag, value.real), strict=True))


def _fraction(step: Any, start: Any) -> Any:
    """A continued fraction, from its last term on. step(k, rest): term k, divided by the rest."""
    return lax.fori_loop(0, FRACTIONS, lambda i, rest: step(FRACTIONS - i, rest), start)


def expn(n, x):
    """The exponential integral E_n(x): of exp(-x t) / t**n from 1 on; n a whole number >= 0."""
    (x,) = of_reals("expn", x)
    n, x = jnp.broadcast_arrays(jnp.asarray(n), x)
    order = n.astype(x.dtype)
    near = (x > 0) & (x <= 1)
    small, large = where(near, x, 0.5), where(x > 1, x, 2.0)

    def term(k: Any, carry: Any) -> Any:
        total, power = carry                    # (-x)**k / k!
        power = where(k > 0, power * -small / jnp.maximum(k, 1), power)
        gap = k - order + 1
        whole = where(gap == 0, 0.0, power / where(gap == 0, 1.0, gap))
        return total - whole, power

    sums: Any = lax.fori_loop(0, 30, term, (jnp.zeros_like(x), jnp.ones_like(x)))
    positive = jnp.maximum(order, 1)
    sign = where(n % 2 == 1, 1.0, -1.0)
    head = sign * lax.exp((positive - 1) * lax.log(small) - lax.lgamma(positive))
    series = sums[0] + head * (lax.digamma(positive) - lax.log(small))
    rest = _fraction(lambda k, rest: (large + order + 2 * k - 2)
                     - k * (order + k - 1) / rest, large + order + 2 * FRACTIONS)
    found = where(near, series, lax.exp(-large) / rest)
    found = where(n == 0, lax.exp(-x) / x, found)
    at_zero = where(n > 1, 1 / where(n > 1, order - 1, 1.0), np.inf)
    found = where(x == 0, at_zero, where(jnp.isinf(x) & (x > 0), 0.0, found))
    return where((n < 0) | (x < 0) | jnp.isnan(x), np.nan, found)


@widened
def sici(x):
    """The sine and cosine integrals (Si, Ci) of x; Ci of a negative number is that of its size."""
    (x,) = promote_args_inexact("sici", x)
    if jnp.iscomplexobj(x):
        raise ValueError(f"Argument `x` to sici must be real-valued. Got dtype {dtype_name(x)}.")
    size = lax.abs(x)
    near = size <= 4
    square = jnp.square(where(near, size, 1.0))
    sines = [(-1) ** k / ((2 * k + 1) * math.factorial(2 * k + 1)) for k in range(20)]
    cosines = [0.0] + [(-1) ** k / (2 * k * math.factorial(2 * k)) for k in range(1, 20)]
    small = (where(near, size, 1.0) * _polynomial(reversed(sines), square),
             np.euler_gamma + lax.log(where(near, size, 1.0))
             + _polynomial(reversed(cosines), square))
    far = where(near | jnp.isinf(size), 5.0, size)
    z = lax.complex(jnp.zeros_like(far), far)
    rest = _fraction(lambda k, rest: (z + 2 * k - 1) - k * k / rest, z + 2 * FRACTIONS + 1)
    found = lax.complex(lax.cos(far), -lax.sin(far)) / rest         # E1(i x)
    sine = where(near, small[0], where(jnp.isinf(size), math.pi / 2, found.imag + math.pi / 2))
    cosine = where(near, small[1], where(jnp.isinf(size), 0.0, -found.real))
    return lax.sign(x) * sine, cosine


@widened
def spence(x):
    """Spence's function, the dilogarithm of 1 - x: the integral of log(t) / (1 - t) from 1 to x."""
    x = _supported(*promote_args_inexact("spence", x))
    inside = where(x > 1, 1 / where(x > 1, x, 1.0), x)          # between 0 and 1
    low = inside < 0.5
    y = where(low, 1 - inside, inside)
    u = -lax.log(y)
    terms = [float(b) / math.factorial(2 * k + 1)
             for k, b in enumerate(_special.bernoulli(20)[2::2], 1)]
    square = u * u
    near = u - square / 4 + u * square * _polynomial(reversed(terms), square)
    both = where(inside == 0, 0.0, lax.log(where(inside == 0, 1.0, inside)) * lax.log1p(
        -where(low, inside, 0.0)))
    found = where(low, math.pi ** 2 / 6 - both - near, near)
    logarithm = lax.log(where(x > 1, x, 1.0))
    return where(x < 0, np.nan, where(x > 1, -0.5 * logarithm * logarithm - found, found))


@widened
def owens_t(h, a):
    """Owen's T function: the probability that X > h and 0 < Y < a X, X and Y normal."""
    h, a = promote_args_inexact("owens_t", h, a)
    h, a = jnp.broadcast_arrays(lax.abs(h), a)
    size = lax.abs(a)
    flip = size > 1
    slope = where(flip, 1 / where(flip, size, 1.0), size)
    height = where(flip, h * where(flip, jnp.minimum(size, 1e30), 1.0), h)
    nodes, weights = np.polynomial.legendre.leggauss(24)
    total = jnp.zeros_like(height)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        place = 1 + jnp.square(slope * float(node))
        total = total + float(weight) * lax.exp(-0.5 * height * height * place) / place
    found = slope * total / (2 * math.pi)
    one, other = ndtr(-h), ndtr(-height)
    outer = 0.5 * (one + other) - one * other - found
    outer = where(h == 0, lax.atan(size) / (2 * math.pi), outer)
    return lax.sign(a) * where(flip, outer, found)


def bernoulli(n):
    """The Bernoulli numbers B_0 to B_n, with B_1 = -1/2: n + 1 of them. n: a Python integer."""
    if not isinstance(n, (int, np.integer)) or n < 0:
        raise ValueError(f"n must be a non-negative integer, got {n!r}")
    return jnp.asarray(_special.bernoulli(max(int(n), 2))[:int(n) + 1], float_default())


def bessel_jn(z, *, v, n_iter=50):
    """The Bessel functions of the first kind J_0 to J_v at z, along a new first dimension.

    By Miller's backward recurrence over n_iter orders, which must be well above abs(z).
    """
    (z,) = promote_dtypes_inexact(jnp.asarray(z))
    if jnp.iscomplexobj(z) and z.dtype not in (jnp.complex64, jnp.complex128):
        raise ValueError(f"complex input expected as complex64 or complex128, got {z.dtype}")
    v = int(v)
    if v < 0 or n_iter <= v:
        raise ValueError(f"bessel_jn needs 0 <= v < n_iter, got v={v} and n_iter={n_iter}")
    safe = where(z == 0, jnp.ones_like(z), z)
    least = float(jnp.finfo(z.dtype).tiny) ** 0.5

    def step(i: Any, carry: Any) -> Any:
        above, here, total, found = carry
        k = n_iter - i                          # `here` is the order k
        below = 2 * k * here / safe - above
        found = found.at[jnp.minimum(k - 1, v)].set(where(k - 1 <= v, below, found[v]))
        total = total + where((k - 1) % 2 == 0, where(k == 1, below, 2 * below), 0)
        scale = where(jnp.abs(below) > 1 / least, least, 1.0)
        return here * scale, below * scale, total * scale, found * scale

    start = (jnp.zeros_like(z), jnp.full_like(z, least), jnp.zeros_like(z),
             jnp.zeros((v + 1, *z.shape), z.dtype))
    end: Any = lax.fori_loop(0, n_iter, step, start)
    at_zero = (jnp.arange(v + 1) == 0).astype(z.dtype).reshape(-1, *[1] * z.ndim)
    return where(z == 0, at_zero, end[3] / end[2])


def erf(x):
    """The error function, elementwise: 2 / sqrt(pi) times the integral of exp(-t**2) from 0 to x.
    """
    (x,) = promote_args_inexact("erf", x)
    return lax.erf(x)


def erfc(x):
    """The complement of the error function, elementwise: 1 - erf(x), without cancellation."""
    (x,) = promote_args_inexact("erfc", x)
    return lax.erfc(x)


def erfinv(x):
    """The inverse of the error function, elementwise, for x between -1 and 1."""
    (x,) = promote_args_inexact("erfinv", x)
    return lax.erf_inv(x)


def ndtr(x):
    """The probability that a standard normal number is at most x.

    >>> from shardtrace.scipy.special import ndtr
    >>> print(ndtr(0.0))
    0.5
    """
    x = _supported(*promote_args_inexact("ndtr", x))
    w = x * math.sqrt(0.5)
    tail = lax.erfc(lax.abs(w))
    near = 1 + lax.erf(w)
    return strong(0.5 * where(lax.abs(w) < math.sqrt(0.5), near, where(w > 0, 2 - tail, tail)))


# From where on (below, above) the formulas for the tails are exact enough.
_TAILS = {np.dtype(np.float64): (-20.0, 8.0)}


@custom_jvp
def _log_ndtr(x):
    below, above = _TAILS.get(np.dtype(dtype_name(x)), (-10.0, 5.0))
    far = jnp.minimum(x, below)
    # The asymptotic series 1 - 1/x^2 + 3/x^4 - 15/x^6 of ndtr(x) (-x) / pdf(x).
    square = 1 / (far * far)
    series = 1 - square * (1 - square * (3 - 15 * square))
    lower = -0.5 * far * far - lax.log(-far) - LOG_SQRT_2PI + lax.log(series)
    middle = lax.log(ndtr(jnp.clip(x, below, above)))
    return where(x > above, -ndtr(-x), where(x > below, middle, lower))


@_log_ndtr.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    y = _log_ndtr(x)
    return y, dx * lax.exp(-0.5 * x * x - LOG_SQRT_2PI - y)


def log_ndtr(x, series_order=3):
    """log of `ndtr`, exact far out in the lower tail too. The series has three terms, whatever
    series_order says, an integer from 0 to 30."""
    if not isinstance(series_order, int):
        raise TypeError("series_order must be a Python integer.")
    if series_order < 0:
        raise ValueError("series_order must be non-negative.")
    if series_order > 30:
        raise ValueError("series_order must be <= 30.")
    return strong(_log_ndtr(_supported(*promote_args_inexact("log_ndtr", x))))


@custom_jvp
def _ndtri(p):
    """Newton's method on log ndtr(x) = log p, for the smaller of p and 1 - p."""
    small = jnp.minimum(p, 1 - p)
    inside = (small > 0) & (small <= 0.5)
    target = lax.log(where(inside, small, 0.5))
    z = jnp.sqrt(-2 * target)
    x = -(z - (2.515517 + 0.802853 * z + 0.010328 * z * z)
          / (1 + 1.432788 * z + 0.189269 * z * z + 0.001308 * z * z * z))
    for _ in range(3):
        y = _log_ndtr(x)
        x = x - (y - target) * lax.exp(y + 0.5 * x * x + LOG_SQRT_2PI)
    x = where(p > 0.5, -x, x)
    edge = where(p == 0, -np.inf, where(p == 1, np.inf, np.nan)).astype(dtype_name(p))
    return where(inside, x, edge)


@_ndtri.defjvp
def _(primals, tangents):
    (p,), (dp,) = primals, tangents
    x = _ndtri(p)
    return x, dp * lax.exp(0.5 * x * x + LOG_SQRT_2PI)


def ndtri(p):
    """The normal distribution's quantiles, elementwise: the inverse of `ndtr`."""
    return _ndtri(_supported(*promote_args_inexact("ndtri", p)))
