"""The logarithm of the gamma function by Stirling's series; of complex numbers, too."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import jnp, lax

# log gamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + sum_k c_k / x^(2k + 1), for large x
# (Abramowitz and Stegun, 6.1.41)
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_SHIFT = 9
_where: Any = jnp.where


def stirling_rest(x: Any) -> Any:
    """The sum over k above."""
    square, total = 1 / (x * x), 0.0
    for c in reversed(_STIRLING):
        total = total * square + c
    return total / x


def complex_loggamma(z: Any) -> Any:
    """The logarithm of gamma(z), cut along the negative real axis; nan at its poles.

    Right of 1/2 by Stirling's series at a larger number, left of it by reflection: the logarithm
    of sin(pi z) is taken in the half-plane of z, where it has no cut.
    """
    z = jnp.asarray(z)
    left = z.real < 0.5
    right = _where(left, 1 - z, z)
    far = right + _SHIFT
    found = (far - 0.5) * lax.log(far) - far + 0.5 * math.log(2 * math.pi) + stirling_rest(far)
    for k in range(_SHIFT):
        found = found - lax.log(right + k)
    lower = jnp.signbit(z.imag)
    above = _where(left, _where(lower, lax.conj(z), z), 0.25 + 1j).astype(z.dtype)
    # sin(pi z) = exp(-i pi z) (1 - exp(2 i pi z)) i / 2, z being less than half from a whole number
    near = lax.complex(above.real - lax.round(above.real, lax.RoundingMethod.TO_NEAREST_EVEN),
                       above.imag)
    sine = lax.log(-lax.expm1(2j * math.pi * near)) - 1j * math.pi * above + (
        0.5j * math.pi - math.log(2))
    sine = _where(lower, lax.conj(sine), sine)
    found = _where(left, math.log(math.pi) - sine - found, found)
    pole = (z.imag == 0) & (z.real <= 0) & (z.real == jnp.floor(z.real))
    return _where(pole | jnp.isnan(z), complex(np.nan, np.nan), found).astype(z.dtype)
