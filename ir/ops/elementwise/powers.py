"""Powers and roots."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...dtypes import issubdtype
from ...facts import CHEAP, EXACT, MAY_BE_NAN, TRANSCENDENTAL, DeviceCost, Types
from ...inference import pending
from ...op import Sample, defop
from ...types import ArrayType
from ..derivatives import (
    add,
    const,
    convert,
    convert_like,
    div,
    eq,
    log,
    mul,
    of_dtype,
    scalar_like,
    sub,
)
from .arithmetic import complex_quotient
from .declaration import (
    FLOAT,
    INEXACT,
    NUMBER,
    broadcast_shapes,
    check_accepted,
    sampled,
    ufunc,
    unary,
    values,
)

F32, F64, I32, C64 = np.float32, np.float64, np.int32, np.complex64


square_p = unary(
    "square", "x * x.", NUMBER,
    jvp=(lambda g, out, x: mul(g, mul(const(2, x), x)),),
    function=np.square,
    facts=(CHEAP, EXACT),
    samples=sampled(1, -3, 3, (F32, I32, C64)))

sqrt_p = unary(
    "sqrt", "The square root; of complex numbers, the principal one.", INEXACT,
    jvp=(lambda g, out, x, **params: mul(g, div(const(0.5, x), out)),),
    function=np.sqrt,
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, 0.1, 9, (F32, C64)))


def _inverse(x: np.ndarray) -> np.ndarray:
    return complex_quotient(np.ones((), x.dtype), x) if x.dtype.kind == "c" else np.reciprocal(x)


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return _inverse(np.sqrt(x))


rsqrt_p = unary(
    "rsqrt", "1 / sqrt(x).", INEXACT,
    jvp=(lambda g, out, x, **params: mul(g, mul(const(-0.5, x), div(out, x))),),
    function=_rsqrt,
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, 0.1, 9, (F32, C64)))

cbrt_p = unary(
    "cbrt", "The real cube root.", FLOAT,
    jvp=(lambda g, out, x, **params: mul(g, mul(const(1 / 3, x), integer_pow_p.bind(out, y=-2))),),
    function=np.cbrt,
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, -3, 3))


def _integer_pow_infer(x: ArrayType, *, y: int) -> tuple[Any, Any]:
    check_accepted("integer_pow", x, NUMBER)
    if y < 0 and issubdtype(x.dtype, np.integer):
        fail(TypeError, f"Integers cannot be raised to negative powers, got integer_pow({x}, {y})",
             code="dtype-not-accepted", help="convert to a float first, with `astype`")
    return x.shape, x.dtype


def _integer_pow_partial(g: Any, out: Any, x: Any, *, y: int) -> Any:
    if y == 0:
        return None
    if y == 1:
        return g
    return mul(g, mul(const(y, x), x if y == 2 else integer_pow_p.bind(x, y=y - 1)))


def _integer_pow(lead: int, x: np.ndarray, *, y: int) -> np.ndarray:
    # By squaring, so that the result is that of multiplications, which wrap for integers.
    result, power, left = None, x, abs(y)
    while left:
        if left & 1:
            result = power if result is None else np.multiply(result, power)
        left >>= 1
        if left:
            power = np.square(power) if x.dtype.kind in "fiu" else np.multiply(power, power)
    if result is None:
        return np.ones_like(x)
    return _inverse(result) if y < 0 else result


def _integer_pow_flops(operands: Types, results: Types, params: dict[str, Any]) -> float:
    """By squaring; an inverse is one more."""
    y, (out,) = abs(params["y"]), results
    return float(out.size * max(1, y.bit_length() + y.bit_count() - 2 + (params["y"] < 0)))


integer_pow_p = defop(
    "integer_pow", doc="x to the power of the integer `y`.",
    infer=_integer_pow_infer, rule="... -> ...", pending=pending.refuse,
    jvp=(_integer_pow_partial,),
    evaluate=_integer_pow,
    facts=(CHEAP, MAY_BE_NAN), cost=DeviceCost(_integer_pow_flops),
    samples=lambda: [s for y in (-3, -1, 0, 1, 2, 5) for s in sampled(
        1, 0.5, 2, (F32, C64) if y < 0 else (F32, I32), y=y)()])


def _pow_infer(x: ArrayType, y: ArrayType) -> tuple[Any, Any]:
    check_accepted("pow", x, INEXACT, 0)
    check_accepted("pow", y, NUMBER, 1)
    if x.dtype != y.dtype and not issubdtype(y.dtype, np.integer):
        fail(TypeError,
             "the first argument to pow must have an inexact dtype (float or complex), and the "
             "second argument must have an inexact or integer dtype, and two inexact dtypes must "
             f"match, but got {x.dtype} and {y.dtype} respectively.", code="dtype-mismatch",
             help="`jnp.power` promotes its operands")
    return broadcast_shapes("pow", (x, y)), x.dtype


def _strong_one(y: Any) -> Any:
    """1 in the dtype of y, never weak: in JAX the derivative by the base is not either."""
    return of_dtype(y.dtype.type(1))


def _pow_by_base(g: Any, out: Any, x: Any, y: Any) -> Any:
    if issubdtype(y.dtype, np.integer):
        # y * x ** (y - 1) would be 0 * inf at x = 0, y = 0, where the derivative is 0.
        is_zero = convert(eq(y, const(0, y)), x.dtype)
        y = convert(y, x.dtype)
        exponent = add(sub(y, _strong_one(y)), is_zero)
        return mul(g, mul(y, pow_p.bind(x, exponent)))
    return mul(g, mul(y, pow_p.bind(x, sub(y, _strong_one(y)))))


def _pow_by_exponent(g: Any, out: Any, x: Any, y: Any) -> Any:
    safe = add(x, convert_like(eq(x, scalar_like(0, x)), x))     # log(1) = 0 in place of log(0)
    return mul(g, mul(log(safe), out))


def _pow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """numpy's power with XLA's results where the two differ: square roots of -0 and -inf, and
    complex powers of zero and infinity.
    """
    if x.dtype.kind == "c" and y.dtype.kind in "iu":       # a large multiple of an angle
        out = np.power(x.astype(np.complex128), y.astype(np.complex128)).astype(x.dtype)
        return np.where(y == 0, np.ones((), x.dtype), out)
    y = y.astype(x.dtype)
    if x.dtype.kind == "f" and (y.size == 1 or 0 in y.strides):
        half = y == 0.5              # there numpy takes the root, which is not even at -0 and -inf
        if half.any():
            x = np.where(half, np.where(x == -np.inf, np.inf, x + 0), x).astype(x.dtype)
    out = np.power(x, y)
    if x.dtype.kind != "c":
        return out
    # As of XLA, which takes angles and logarithms apart: 0 ** 0 = 1, and what turns without end is
    # undefined.
    undefined = np.isinf(x) | (x == 0) & (np.imag(y) != 0)
    out = np.where(undefined, out.dtype.type(complex(np.nan, np.nan)), out)
    return np.where(y == 0, np.ones((), x.dtype), out)


pow_p = defop(
    "pow", doc="x to the power of y; y may be of integers.", infer=_pow_infer, rule="... -> ...",
    jvp=(_pow_by_base, _pow_by_exponent),
    evaluate=ufunc(_pow),
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=lambda: [
        *sampled(2, 0.3, 3, (F32, C64))(),
        Sample((values((4, 6), F32, -2, 2), values((4, 6), I32, -3, 3))),
        Sample((values((4, 6), C64, -1, 1), values((4, 6), I32, -3, 3)))])
