"""The hypergeometric functions 1F1 and 2F1 of real numbers, as in `jax.scipy.special`.

Both are power series, summed where all terms have one sign and become small; transformations bring
other arguments there (Abramowitz and Stegun, 13.1.27 and 13.5.1; 15.3.3 and 15.3.4). Near 1, where
the series of 2F1 is slow, its differential equation is followed in steps. Loops have fixed lengths,
so all parameters have derivatives in both modes.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import jnp, lax
from ...operands.dtype_promotion import promote_args_inexact
from .functions import gamma, gammasgn, where, widened

_BIG = 1e10


def _ends(a: Any) -> Any:
    """Whether a series with this parameter above the line has finitely many terms."""
    return (a <= 0) & (a == jnp.floor(a))


@widened
def hyp1f1(a, b, x):
    """Kummer's function 1F1(a; b; x), elementwise: the sum of (a)_k / (b)_k x**k / k!.

    1 where a is 0, infinite where b is 0 and a is not. Source: `jax.scipy.special.hyp1f1`.

    >>> from shardtrace.scipy.special import hyp1f1
    >>> print(hyp1f1(1.0, 2.0, 1.0).round(4))               # e - 1
    1.7183
    """
    a, b, x = jnp.broadcast_arrays(*promote_args_inexact("hyp1f1", a, b, x))
    if jnp.iscomplexobj(x):
        raise ValueError("hyp1f1 does not support complex-valued inputs.")
    below, ends = x < 0, _ends(a)
    size = lax.abs(x)
    upper = where(below, b - a, a)              # exp(-x) 1F1(upper; b; size) where x < 0
    far = (size >= 100) & ~ends
    y = where(far, 1.0, size)

    def term(k: Any, carry: Any) -> Any:
        total, last, scale = carry
        k = k.astype(x.dtype)
        last = last * (upper + k) / (b + k) * y / (k + 1)
        total = total + last
        large = lax.abs(last) > _BIG
        shrink = where(large, 1 / _BIG, 1.0)
        return total * shrink, last * shrink, scale + where(large, math.log(_BIG), 0.0)

    one = jnp.ones_like(x)
    sums: Any = lax.fori_loop(0, 300, term, (one, one, jnp.zeros_like(x)))
    total, _, scale = sums
    near = total * lax.exp(scale - where(below, y, 0.0))
    y = where(far, size, 200.0)
    last = rest = one
    for n in range(12):
        last = last * (b - upper + n) * (1 - upper + n) / ((n + 1) * y)
        rest = rest + last
    logarithm = (lax.lgamma(b) - lax.lgamma(upper) + (upper - b) * lax.log(y)
                 + where(below, 0.0, y))
    distant = gammasgn(b) * gammasgn(upper) * lax.exp(where(far, logarithm, 0.0)) * rest
    found = where(a == b, lax.exp(x), where(far, distant, near))
    return where(a == 0, 1.0, where(b == 0, np.inf, found))


@widened
def hyp2f1(a, b, c, x):
    """Gauss' function 2F1(a, b; c; x), elementwise: the sum of (a)_k (b)_k / (c)_k x**k / k!.

    Infinite where c is 0 or a negative whole number, and for x > 1 unless the sum is finite.
    Source: `jax.scipy.special.hyp2f1`.

    >>> from shardtrace.scipy.special import hyp2f1
    >>> print(hyp2f1(1.0, 1.0, 2.0, 0.5).round(4))          # 2 log 2
    1.3863
    """
    a, b, c, x = jnp.broadcast_arrays(*promote_args_inexact("hyp2f1", a, b, c, x))
    if jnp.iscomplexobj(x):
        raise ValueError("hyp2f1 does not support complex-valued inputs.")
    ends, no_value = _ends(a) | _ends(b), _ends(c)
    c = where(no_value, 1.0, c)
    inside = ends | (x < 1)
    z = where(inside, x, 0.0)
    below = (z < 0) & ~ends
    z, second = where(below, z / (z - 1), z), where(below, c - b, b)
    power = where(ends, 0.0, c - a - second)
    flip = power < 0                            # (1 - z)**power 2F1(c - a, c - b; c; z)
    found = _between(where(flip, c - a, a), where(flip, c - second, second), c, z, ends)
    rest = where(below, 1 / (1 - where(below, x, 0.0)), 1 - where(ends, 0.0, z))
    found = found * where(flip, rest ** power, 1.0) * where(below, rest ** a, 1.0)
    at_one = (x == 1) & (c - a - b > 0)
    above, one, other = (where(at_one, v, 1.0) for v in (c - a - b, c - a, c - b))
    beyond = where(at_one, gamma(c) * gamma(above) / (gamma(one) * gamma(other)),
                   where(jnp.isnan(x), np.nan, np.inf))
    found = where(no_value, np.inf, where(inside, found, beyond))
    return where((x == 0) | ((a == 0) | (b == 0)) & ~no_value, 1.0, found)


def _between(a: Any, b: Any, c: Any, z: Any, ends: Any) -> Any:
    """2F1(a, b; c; z) for z from 0 to 1, with c >= a + b; and wherever the series `ends`."""
    terms, steps, local = (220, 24, 30) if z.dtype.itemsize == 4 else (450, 54, 60)
    start = where(ends, z, jnp.minimum(z, 0.9))

    def term(k: Any, carry: Any) -> Any:
        total, slope, last = carry              # slope: z times the derivative
        k = k.astype(z.dtype)
        last = last * (a + k) * (b + k) / ((c + k) * (k + 1)) * start
        return total + last, slope + (k + 1) * last, last

    one, zero = jnp.ones_like(z), jnp.zeros_like(z)
    sums: Any = lax.fori_loop(0, terms, term, (one, zero, one))
    total, slope, _ = sums
    slope = slope / where(start == 0, 1.0, start)

    def step(i: Any, carry: Any) -> Any:
        """Value and derivative halfway from x to 1, or at z if that is before, by the series of
        z (1 - z) y'' + (c - (a + b + 1) z) y' - a b y = 0 around x."""
        x, value, slope = carry
        h = jnp.minimum(where(ends, 0.0, z - x), (1 - x) / 2)
        turn, total = a + b + 1, c - (a + b + 1) * x
        scale = x * (1 - x)
        first, second = value, slope * h
        value, slope = first + second, second
        for k in range(local):
            following = (((k * (k - 1) + k * turn + a * b) * h * first
                          - (k + 1) * (k * (1 - 2 * x) + total) * second)
                         * h / ((k + 1) * (k + 2) * scale))
            first, second = second, following
            value, slope = value + following, slope + (k + 2) * following
        return x + h, value, slope / where(h == 0, 1.0, h) + where(h == 0, carry[2], 0.0)

    x = where(ends | (start == 0), 0.5, start)
    end: Any = lax.fori_loop(0, steps, step, (x, total, slope))
    return end[1]
