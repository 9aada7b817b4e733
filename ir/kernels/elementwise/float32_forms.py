"""erf, erfc, log1p and expm1 in float32, with few numpy calls on whole arrays; exp and log of few.

The C library computes these element by element; here each is a handful of numpy's vectorised
functions. They consist of ufuncs and selections only, so they can be fused with the ops around them
(runtime/calls/symbolic.py).

Largest errors, in units of the last place: erf 6 (JAX 6), log1p and expm1 5 (JAX 6), erfc 8 for x
below 1; beyond, erfc is off by up to 4e-6 of its value, as in JAX: exp(-x * x) loses so much.

Sources: erf: the rational form of Eigen and XLA; log1p: Kahan, in Goldberg, "What every computer
scientist should know about floating-point arithmetic", 1991. erfc: exp(-x * x) times a polynomial
in 2.5 / (2.5 + x), fitted to the relative error.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

F32 = np.dtype(np.float32)
_f32 = np.float32
FEW = 256                                           # twice as many in float64 take a microsecond

_ERF_END = _f32(3.832506856900711)                  # where erf is 1
_ERF_TOP = (2.2905065861350646e-4, 3.4082910107109506e-3, 5.0955695062380861e-2,
            1.8520832239976145e-1, 1.128379143519084)
_ERF_BOTTOM = (-1.1791602954361697e-7, 2.3547966471313185e-5, 1.0179625278914885e-3,
               1.4070470171167667e-2, 1.1098505178285362e-1, 4.9746925110067538e-1, 1.0)
_ERFC_AT = _f32(2.5)
_ERFC = (7.17916861e-2, -3.85894984e-1, 6.75199091e-1, -3.75466168e-1, 4.19902802e-1,
         1.29675627e-1, 2.40647674e-1, 2.24070892e-1, 7.33661363e-5)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Highest power first."""
    first, second, *others = map(_f32, coefficients)
    total = np.add(np.multiply(x, first), second)
    for c in others:
        total = np.add(np.multiply(total, x), c)
    return total


def erf(x: Any) -> Any:
    """The error function."""
    x = np.minimum(np.maximum(x, -_ERF_END), _ERF_END)
    square = np.multiply(x, x)
    quotient = np.divide(np.multiply(x, _polynomial(square, _ERF_TOP)),
                         _polynomial(square, _ERF_BOTTOM))
    return np.minimum(np.maximum(quotient, _f32(-1)), _f32(1))


def erfc(x: Any) -> Any:
    """1 - erf(x)."""
    t = np.divide(_ERFC_AT, np.add(np.absolute(x), _ERFC_AT))
    tail = np.multiply(np.exp(np.negative(np.multiply(x, x))), _polynomial(t, _ERFC))
    return np.where(np.less(x, _f32(0)), np.subtract(_f32(2), tail), tail)


def log1p(x: Any) -> Any:
    """log(1 + x): the logarithm of what 1 + x is rounded to, made up for what that loses."""
    whole = np.add(x, _f32(1))
    rounded = np.subtract(whole, _f32(1))
    part = np.where(np.equal(rounded, x), _f32(1), np.divide(x, rounded))       # infinities, too
    return np.where(np.equal(rounded, _f32(0)), x, np.multiply(np.log(whole), part))


def expm1(x: Any) -> Any:
    """exp(x) - 1, which is tanh(x / 2) * (exp(x) + 1)."""
    return np.multiply(np.tanh(np.multiply(x, _f32(0.5))), np.add(np.exp(x), _f32(1)))


def in_float64_if_few(ufunc: np.ufunc) -> Any:
    """The function that is a ufunc, in float64 of float32 numbers that are few.

    There a call takes as long as its numbers, and these are then off by half a unit of the last
    place, not by two or three: derivatives are checked against differences of few numbers, of which
    steps of 1e-4 leave 3 digits.
    """
    def function(x: Any) -> Any:
        if x.dtype != F32 or x.size > FEW:
            return ufunc(x)
        return ufunc(x.astype(np.float64)).astype(F32)
    return function


def in_float32(form: Any, otherwise: Any) -> Any:
    """The function that is `form` of float32, and another one of what is not."""
    def function(x: Any) -> Any:
        return form(x) if x.dtype == F32 else otherwise(x)
    return function
