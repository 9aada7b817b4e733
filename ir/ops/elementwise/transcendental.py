"""Exponentials, logarithms, trigonometric and hyperbolic functions, of floats and complex numbers.

Derivatives are written so that the tangent enters by one product whose other factor is known: what
is transposed is then one `mul`, and one value is kept for it.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...facts import MAY_BE_NAN, RECOMPUTED, TRANSCENDENTAL
from ...kernels.elementwise import float32_forms
from ...kernels.elementwise.float32_forms import in_float32, in_float64_if_few
from ..derivatives import add, const, div, mul, neg, rsqrt, scalar_like, square, sub
from .arithmetic import complex_quotient
from .declaration import INEXACT, nary, sampled, unary

F32, C64 = np.float32, np.complex64


def _function(name: str, function: Any, doc: str, partial: Any, low: float, high: float,
              facts: Sequence[str] = (TRANSCENDENTAL, MAY_BE_NAN), jax: Any = "") -> Any:
    """Declare one. partial: (out, x) -> the derivative at x. low, high: limits of its samples."""
    return unary(
        name, doc, INEXACT,
        jvp=(lambda g, out, x, **params: mul(g, partial(out, x)),),
        function=function,
        facts=facts,
        jax=jax,
        samples=sampled(1, low, high, (F32, C64)))


def _one(x: Any) -> Any:
    return scalar_like(1, x)


# -- exponentials and logarithms ------------------------------------------------------------------

exp_p = _function("exp", in_float64_if_few(np.exp), "e to the power of x.",
                  lambda out, x: out, -3, 3)
exp2_p = _function("exp2", np.exp2, "2 to the power of x.",
                   lambda out, x: mul(const(math.log(2), x), out), -3, 3,
                   (TRANSCENDENTAL,))
expm1_p = _function("expm1", in_float32(float32_forms.expm1, np.expm1),
                    "exp(x) - 1, accurate near 0.",
                    lambda out, x: add(out, _one(x)), -3, 3)
log_p = unary(
    "log", "The natural logarithm.", INEXACT,
    jvp=(lambda g, out, x, **params: div(g, x),),
    function=in_float64_if_few(np.log),
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, 0.1, 5, (F32, C64)))
log1p_p = unary(
    "log1p", "log(1 + x), accurate near 0.", INEXACT,
    jvp=(lambda g, out, x, **params: div(g, add(x, _one(x))),),
    function=in_float32(float32_forms.log1p, np.log1p),
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, -0.9, 5, (F32, C64)))


def _logistic(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        return complex_quotient(np.ones((), x.dtype), np.add(np.exp(np.negative(x)), 1))
    return np.reciprocal(np.add(np.exp(np.negative(x)), np.ones((), x.dtype)))


logistic_p = _function("logistic", _logistic, "1 / (1 + exp(-x)).",
                       lambda out, x: mul(out, sub(_one(x), out)),
                       -3, 3)

# -- trigonometric functions ----------------------------------------------------------------------

sin_p = _function("sin", np.sin, "The sine.", lambda out, x: cos_p.bind(x), -3, 3,
                  (RECOMPUTED, MAY_BE_NAN))
cos_p = _function("cos", np.cos, "The cosine.", lambda out, x: neg(sin_p.bind(x)), -3, 3,
                  (RECOMPUTED, MAY_BE_NAN))
tan_p = _function("tan", np.tan, "The tangent.", lambda out, x: add(const(1, x), square(out)),
                  -1.4, 1.4, (RECOMPUTED, MAY_BE_NAN))
asin_p = _function("asin", np.arcsin, "The inverse sine.",
                   lambda out, x: rsqrt(sub(const(1, x), square(x))), -0.9, 0.9)
acos_p = _function("acos", np.arccos, "The inverse cosine.",
                   lambda out, x: neg(rsqrt(sub(const(1, x), square(x)))), -0.9, 0.9)
atan_p = unary(
    "atan", "The inverse tangent.", INEXACT,
    jvp=(lambda g, out, x: div(g, add(const(1, x), square(x))),),
    function=np.arctan,
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, -3, 3, (F32, C64)))


def _squared_radius(x: Any, y: Any) -> Any:
    return add(square(x), square(y))


def _atan2(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    if y.dtype.kind != "c":
        return np.arctan2(y, x)
    unit = np.divide(np.add(x, 1j * y), np.sqrt(np.add(np.square(x), np.square(y))))
    return (-1j * np.log(unit)).astype(y.dtype)


atan2_p = nary(
    "atan2", "The angle of the point (y, x) for operands x, y.", (INEXACT, INEXACT),
    jvp=(lambda g, out, x, y: mul(g, div(y, _squared_radius(x, y))),
         lambda g, out, x, y: mul(g, div(neg(x), _squared_radius(x, y)))),
    function=_atan2,
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=lambda: [*sampled(2, -3, 3)(), *sampled(2, 0.3, 2, (C64,))()])

# -- hyperbolic functions -------------------------------------------------------------------------

sinh_p = _function("sinh", np.sinh, "The hyperbolic sine.", lambda out, x: cosh_p.bind(x),
                   -3, 3)
cosh_p = _function("cosh", np.cosh, "The hyperbolic cosine.", lambda out, x: sinh_p.bind(x),
                   -3, 3)
tanh_p = _function("tanh", np.tanh, "The hyperbolic tangent.",
                   lambda out, x: mul(sub(_one(x), out), add(_one(x), out)), -3, 3)
asinh_p = _function("asinh", np.arcsinh, "The inverse hyperbolic sine.",
                    lambda out, x: rsqrt(add(square(x), _one(x))), -3, 3)
acosh_p = _function("acosh", np.arccosh, "The inverse hyperbolic cosine.",
                    lambda out, x: rsqrt(sub(square(x), _one(x))), 1.2, 5)
atanh_p = unary(
    "atanh", "The inverse hyperbolic tangent.", INEXACT,
    jvp=(lambda g, out, x: div(g, mul(sub(_one(x), x), add(_one(x), x))),),
    function=np.arctanh,
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, -0.9, 0.9, (F32, C64)))

