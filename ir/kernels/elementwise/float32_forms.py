"""erf, erfc, log1p and expm1 in float32, with few numpy calls on whole arrays; exp and log of
small arrays.

The C library computes these element by element; here each is a handful of numpy's vectorised
functions. They consist of ufuncs and selections only, so they can be fused with the ops around them
(runtime/calls/symbolic.py).

Largest errors, in units of the last place: erf 4 (JAX 6), log1p and expm1 5 (JAX 6), erfc 8 for x
below 1; beyond, erfc is off by up to 4e-6 of its value, as in JAX: exp(-x * x) loses so much.

Sources: log1p: Kahan, in Goldberg, "What every computer scientist should know about floating-point
arithmetic", 1991. erf: tanh of an odd polynomial, which grows where tanh is 1 to the last bit.
erfc: exp(-x * x) times a polynomial in 1 / (2.8 + x). Both were fitted to the relative error.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

F32 = np.dtype(np.float32)
_f32 = np.float32
FEW = 256                                           # twice as many in float64 take a microsecond

_ERF = (1.41850023e-7, -5.66843491e-6, 8.76370625e-5, -6.19783907e-4, -1.91831736e-4,
        1.02769056e-1, 1.12837927)
_ERFC_AT, _ERFC_SCALE = _f32(2.8), _f32(-2.1916716)     # so that the highest power has factor 1
_ERFC = (1, 2.8391476, 1.7231759, 1.5055219, -0.0704362, 0.38722765, -0.25161603, 2.4444275e-4)
_TWO = np.int32(_f32(2).view(np.int32))
_LARGEST, _SMALL = np.finfo(F32).max, _f32(1e-30)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Highest power first."""
    first, second, *others = map(_f32, coefficients)
    total = np.add(x if first == 1 else np.multiply(x, first), second)
    for c in others:
        total = np.add(np.multiply(total, x), c)
    return total


def erf(x: Any) -> Any:
    """The error function."""
    return np.tanh(np.multiply(x, _polynomial(np.multiply(x, x), _ERF)))


def erfc(x: Any) -> Any:
    """1 - erf(x)."""
    t = np.divide(_ERFC_SCALE, np.add(np.absolute(x), _ERFC_AT))
    tail = np.multiply(np.exp(np.negative(np.multiply(x, x))), _polynomial(t, _ERFC))
    negative = np.right_shift(x.view(np.int32), np.int32(31))           # ones, or zeros
    return np.absolute(np.subtract(np.bitwise_and(negative, _TWO).view(F32), tail))


def log1p(x: Any) -> Any:
    """log(1 + x): the logarithm of what 1 + x is rounded to, made up for what that loses.

    That logarithm is 0 where x is lost altogether, and so is what it is divided by.
    """
    whole = np.add(x, _f32(1))
    rounded = np.subtract(np.minimum(whole, _LARGEST), _f32(1))         # infinity / that: infinity
    part = np.divide(x, np.add(rounded, _SMALL))
    return np.multiply(np.add(np.log(whole), _SMALL), part)


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
    """The function that is `form` on float32, and `otherwise` on all else."""
    def function(x: Any) -> Any:
        return form(x) if x.dtype == F32 else otherwise(x)
    return function
