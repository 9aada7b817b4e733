"""Exponential integrals, as in `jax.scipy.special`: `expi` and `exp1`.

Three expansions, each where it converges soon: the power series near 0 and for positive numbers
up to 40, where all its terms have one sign; a continued fraction for negative numbers; and for
large positive ones the asymptotic series (Abramowitz and Stegun, 5.1.10, 5.1.22 and 5.1.51).
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import jnp, lax
from ...autodiff.custom.custom_jvp import custom_jvp
from .functions import of_reals, where

_SERIES, _FRACTION, _ASYMPTOTIC, _LARGE = 140, 80, 30, 40.0


def _series(x: Any) -> Any:
    """gamma + log |x| + sum of x^k / (k k!)."""
    def term(k: Any, carry: Any) -> Any:
        power, total = carry
        n = lax.convert_element_type(k, x.dtype)
        power = power * x / n
        return power, total + power / n

    found: Any = lax.fori_loop(1, _SERIES, term, (jnp.ones_like(x), jnp.zeros_like(x)))
    total = found[1]
    return float(np.euler_gamma) + lax.log(lax.abs(x)) + total


def _fraction(z: Any) -> Any:
    """E1(z) = exp(-z) / (z + 1 - 1 / (z + 3 - 4 / (z + 5 - 9 / ...))), from its end."""
    def level(k: Any, below: Any) -> Any:
        n = lax.convert_element_type(_FRACTION - k, z.dtype)
        return -n * n / (z + 2 * n + 1 + below)

    return lax.exp(-z) / (z + 1 + lax.fori_loop(0, _FRACTION, level, jnp.zeros_like(z)))


def _asymptotic(x: Any) -> Any:
    """exp(x) / x (1 + 1 / x (1 + 2 / x (1 + 3 / x ...)))."""
    total = jnp.ones_like(x)
    for k in range(_ASYMPTOTIC, 0, -1):
        total = 1 + total * k / x
    return lax.exp(x) / x * total


@custom_jvp
def _expi(x):
    near, large = (x >= -1) & (x <= _LARGE), x > _LARGE
    result = where(near, _series(where(near & (x != 0), x, 1)), where(
        large, _asymptotic(where(large, x, _LARGE)), -_fraction(where(x < -1, -x, 1))))
    result = where(x == 0, -np.inf, where(x == np.inf, np.inf, where(x == -np.inf, -0.0, result)))
    return where(jnp.isnan(x), np.nan, result)


@_expi.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return _expi(x), dx * (lax.exp(x) / x)


def expi(x):
    """The exponential integral Ei, elementwise: of exp(t) / t from -infinity to x.

    >>> from shardtrace.scipy.special import expi
    >>> expi(jnp.array([-1., 0., 1.])).round(3)
    Array([-0.219,   -inf,  1.895], dtype=float32)
    """
    (x,) = of_reals("expi", x)
    return _expi(x)


def exp1(x):
    """The exponential integral E1, elementwise: of exp(-t) / t from x to infinity; NaN below 0."""
    (x,) = of_reals("exp1", x)
    return where(x < 0, jnp.full_like(x, np.nan), -_expi(-x))
