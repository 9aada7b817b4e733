"""Arithmetic: sums, products, quotients, rounding, maxima (powers are in powers.py).

Integers are those of machines: they wrap around, division truncates toward zero, a remainder has
the dividend's sign; a quotient by zero is -1 (all bits set) and the remainder then the dividend,
as XLA defines them. Maxima and minima propagate NaN; on complex numbers they are lexicographic.
"""
from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...dtypes import loop_dtype
from ...facts import CHEAP, COMMUTES, EXACT, MAY_BE_NAN
from ...inference import pending
from ...op import Evaluator, LinearOperand, Sample, defop
from ...param_types import register_param_type
from ...types import ArrayType
from ..derivatives import (
    abs_,
    broadcast_like,
    conj,
    const,
    convert,
    convert_like,
    div,
    eq,
    floor,
    ge,
    in_front,
    is_complex,
    mul,
    neg,
    real,
    scalar_like,
    sign,
    sub,
    unbroadcast,
)
from .declaration import (
    ANY,
    FLOAT,
    INEXACT,
    INTEGER,
    NUMBER,
    broadcast_shapes,
    check_accepted,
    nary,
    nary_infer,
    sampled,
    ufunc,
    unary,
    unary_infer,
    values,
)

F32, F64, C64 = np.float32, np.float64, np.complex64
I32, I64 = np.int32, np.int64


# -- sums -----------------------------------------------------------------------------------------

def _add_jvp(operands: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    out = add_p.bind(*operands)
    a, b = tangents
    return out, add_p.bind(a, b) if a is not None and b is not None else broadcast_like(
        b if a is None else a, out)


def _add_transpose(ct: Any, x: Any, y: Any) -> list[Any]:
    return [unbroadcast(v.aval, ct) if isinstance(v, LinearOperand) else None for v in (x, y)]


def _sub_jvp(operands: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    out = sub_p.bind(*operands)
    a, b = tangents
    if a is not None and b is not None:
        return out, sub_p.bind(a, b)
    return out, broadcast_like(neg(b) if a is None else a, out)


def _sub_transpose(ct: Any, x: Any, y: Any) -> list[Any]:
    return [unbroadcast(x.aval, ct) if isinstance(x, LinearOperand) else None,
            unbroadcast(y.aval, neg(ct)) if isinstance(y, LinearOperand) else None]


add_p = nary(
    "add", "x + y.", (NUMBER, NUMBER), pending=pending.all_or_none,
    linear=((0, 1),), jvp=_add_jvp, transpose=_add_transpose,
    function=np.add,
    facts=(CHEAP, EXACT, COMMUTES, MAY_BE_NAN),
    samples=sampled(2, -3, 3, (F32, I32, C64)))

sub_p = nary(
    "sub", "x - y.", (NUMBER, NUMBER),
    linear=((0, 1),), jvp=_sub_jvp, transpose=_sub_transpose,
    function=np.subtract,
    facts=(CHEAP, EXACT, MAY_BE_NAN),
    samples=sampled(2, -3, 3, (F32, np.uint8)))


def _add_any_infer(x: ArrayType, y: ArrayType) -> tuple[Any, Any, bool]:
    if x.shape != y.shape or x.dtype != y.dtype:
        fail(TypeError, f"add_any requires operands of one type, got {x.str_short()} and "
             f"{y.str_short()}", code="shape-mismatch",
             help="`jnp.add` broadcasts and promotes its operands")
    return x.shape, x.dtype, x.weak_type


add_any_p = defop(
    "add_any", doc="The sum of two cotangents or tangents of one value.",
    infer=_add_any_infer, rule="... -> ...", pending=pending.all_or_none,
    linear=((0, 1),), jvp="linear", transpose=_add_transpose,
    batch=in_front("add_any"),
    evaluate=ufunc(np.add),
    facts=(CHEAP, COMMUTES),
    jax="lax.add",
    samples=lambda: [Sample((values((4, 6), F32, -3, 3), values((4, 6), F32, -2, 5, 1)))])

neg_p = unary(
    "neg", "-x.", NUMBER,
    linear=((0,),), jvp="linear", transpose=lambda ct, x: [neg(ct)],
    function=np.negative,
    facts=(CHEAP, EXACT),
    samples=sampled(1, -3, 3, (F32, I32, C64)))


# -- products and quotients -----------------------------------------------------------------------

_mul_same_dtype = nary_infer("mul", (NUMBER, NUMBER))


def _mul_infer(x: ArrayType, y: ArrayType, out_dtype: Any = None) -> tuple[Any, Any]:
    if out_dtype is None:
        return _mul_same_dtype(x, y)
    for i, t in enumerate((x, y)):
        check_accepted("mul", t, NUMBER, i)
    return broadcast_shapes("mul", (x, y)), np.dtype(out_dtype)


def _mul_transpose(ct: Any, x: Any, y: Any, out_dtype: Any = None) -> list[Any]:
    def side(operand: Any, factor: Any) -> Any:
        if not isinstance(operand, LinearOperand):
            return None
        if out_dtype is None:
            return unbroadcast(operand.aval, mul(ct, factor))
        return unbroadcast(operand.aval, mul(ct, factor, out_dtype=operand.aval.dtype))
    return [side(x, y), side(y, x)]


def _mul_evaluate(lead: int, x: np.ndarray, y: np.ndarray, out_dtype: Any = None) -> np.ndarray:
    if out_dtype is not None:
        x, y = x.astype(out_dtype), y.astype(out_dtype)
    return np.multiply(x, y)


mul_p = defop(
    "mul", doc="x * y; with `out_dtype`, of operands converted to that dtype.",
    infer=_mul_infer, rule="... -> ...", pending=pending.product,
    linear=((0,), (1,)),
    jvp=(lambda g, out, x, y, **params: mul(g, y, **params),
         lambda g, out, x, y, **params: mul(x, g, **params)),
    transpose=_mul_transpose,
    evaluate=Evaluator(_mul_evaluate, ufunc=lambda dtype, params: (
        np.multiply if params.get("out_dtype") is None else None)),
    facts=(CHEAP, EXACT, COMMUTES, MAY_BE_NAN),
    samples=lambda: [
        *sampled(2, -3, 3, (F32, I32, C64))(),
        Sample((values((4, 6), np.int8, -9, 9), values((4, 6), np.int8, -9, 9, 1)),
               {"out_dtype": np.dtype(I32)}, grad=False)])


def _div_transpose(ct: Any, x: Any, y: Any) -> list[Any]:
    return [unbroadcast(x.aval, div(ct, y)), None]


def _toward_zero(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The quotients truncated; 0 where y is 0."""
    quotient = np.floor_divide(x, y)
    if x.dtype.kind == "i":
        rounded_down = (quotient < 0) & (np.multiply(quotient, y) != x)
        quotient = np.add(quotient, rounded_down.astype(x.dtype))
    return quotient


def _truncated_quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if y.size == 1:
        by_zero = np.equal(x & x.dtype.type(0), y)      # of the shape of x: blocks can be cut of it
        return np.subtract(_toward_zero(x, y), by_zero.astype(x.dtype))
    if x.dtype.itemsize <= 4:       # exact in doubles, which are divided several at a time
        quotient = np.divide(x.astype(F64), y.astype(F64)).astype(I64).astype(x.dtype)
    else:
        quotient = _toward_zero(x, y)
    return np.where(y == 0, np.invert(np.zeros((), x.dtype)), quotient)


def complex_quotient(x: Any, y: Any) -> Any:
    """x / y as in annex G of the C standard: infinite over finite is infinite, finite over infinite
    is zero, where numpy has NaN."""
    out: Any = np.asarray(np.divide(x, y))
    zero = np.equal(y, 0)
    odd = zero | np.isnan(out.real) & np.isnan(out.imag)
    if not odd.any():
        return out
    (a, b), (c, d) = ([np.broadcast_to(v, out.shape)[odd] for v in (z.real, z.imag)]
                      for z in (x, y))
    infinite, below = np.isinf(a) | np.isinf(b), np.isinf(c) | np.isinf(d)
    at_zero, edge = np.broadcast_to(zero, out.shape)[odd], np.copysign(np.inf, c)
    over_zero = edge * a, edge * b
    grows = infinite & np.isfinite(c) & np.isfinite(d)
    fades = below & np.isfinite(a) & np.isfinite(b)
    a, b = (np.where(grows, np.copysign(np.isinf(v).astype(v.dtype), v), v) for v in (a, b))
    c, d = (np.where(fades, np.copysign(np.isinf(v).astype(v.dtype), v), v) for v in (c, d))
    factor = np.where(grows, np.inf, 0)
    real = np.where(grows | fades, factor * (a * c + b * d), out.real[odd])
    imag = np.where(grows | fades, factor * (b * c - a * d), out.imag[odd])
    out.real[odd] = np.where(at_zero, over_zero[0], real)
    out.imag[odd] = np.where(at_zero, over_zero[1], imag)
    return out


def _div(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        return complex_quotient(x, y)
    wide = loop_dtype(x.dtype)
    if wide != x.dtype:
        return _truncated_quotient(x.astype(wide), y.astype(wide)).astype(x.dtype)
    return np.divide(x, y) if x.dtype.kind not in "iu" else _truncated_quotient(x, y)


div_p = nary(
    "div", "x / y; of integers, truncated toward zero.", (NUMBER, NUMBER),
    linear=((0,),), passes_sums="constants",
    jvp=(lambda g, out, x, y: div(g, y), lambda g, out, x, y: mul(g, neg(div(out, y)))),
    transpose=_div_transpose,
    function=_div, chosen=lambda dtype, params: None if dtype.kind in "iuc" else np.divide,
    facts=(CHEAP, EXACT, MAY_BE_NAN),
    samples=lambda: [
        *sampled(2, 0.5, 3, (F32, C64))(),
        *sampled(2, -9, 9, (I32,))()])


def _rem_by_divisor(g: Any, out: Any, x: Any, y: Any) -> Any:
    quotient = div(x, y)
    return mul(g, neg(mul(sign(quotient), floor(abs_(quotient)))))


def _rem(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    wide = loop_dtype(x.dtype)
    if wide != x.dtype:
        return _rem(x.astype(wide), y.astype(wide)).astype(x.dtype)
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    if y.size != 1:
        return np.where(y == 0, x, np.fmod(x, y))
    return np.subtract(x, np.multiply(_toward_zero(x, y), y))


rem_p = nary(
    "rem", "The remainder of x / y truncated; it has the sign of x.",
    (INTEGER + FLOAT, INTEGER + FLOAT),
    jvp=(lambda g, out, x, y: broadcast_like(g, out), _rem_by_divisor),
    function=_rem,
    facts=(EXACT, MAY_BE_NAN),
    samples=lambda: [
        *sampled(2, -9.1, 9.3, (F32,))(),
        *sampled(2, -9, 9, (I32,))()])


def _high_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    # Python's integers do not overflow.
    wide = np.multiply(x.astype(object), y.astype(object))
    return np.asarray(wide >> (8 * x.dtype.itemsize)).astype(x.dtype)


mulhi_p = nary(
    "mulhi", "The upper half of the bits of x * y.", (INTEGER, INTEGER),
    jvp="zero",
    function=_high_product,
    jax="high_product",
    samples=sampled(2, -2**31, 2**31 - 1, (I32,)))


# -- rounding and parts ---------------------------------------------------------------------------

@register_param_type
class RoundingMethod(enum.IntEnum):
    """How `round` treats halves: away from zero, or to the even neighbour."""
    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def _round(lead: int, x: np.ndarray, *, rounding_method: int) -> np.ndarray:
    if rounding_method == RoundingMethod.TO_NEAREST_EVEN:
        return np.rint(x)
    whole = np.trunc(x)
    # x - whole is exact, x + 0.5 would not be.
    away = np.greater_equal(np.abs(np.subtract(x, whole)), 0.5)
    return np.copysign(np.add(whole, np.copysign(away.astype(x.dtype), x)), x)


round_p = defop(
    "round", doc="The nearest integer, halves by `rounding_method` (see RoundingMethod).",
    infer=unary_infer("round", FLOAT), rule="... -> ...",
    jvp="zero",
    evaluate=_round,
    samples=lambda: [
        *sampled(1, -3.2, 3.1,
                 rounding_method=RoundingMethod.AWAY_FROM_ZERO)(),
        Sample((np.array([0.5, 1.5, -2.5, 2.4], F32),), {"rounding_method": 1}, grad=False)])

floor_p = unary(
    "floor", "The largest integer not above x.", FLOAT,
    jvp="zero",
    function=np.floor,
    samples=sampled(1, -3.2, 3.1))
ceil_p = unary(
    "ceil", "The smallest integer not below x.", FLOAT,
    jvp="zero",
    function=np.ceil,
    samples=sampled(1, -3.2, 3.1))


def _sign(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "f":
        return np.sign(x)
    # Any number but 0 is beyond 1 after this. NaN and -0.0 stay, and it is faster than `np.sign`.
    huge = np.ldexp(x.dtype.type(1), np.finfo(x.dtype).maxexp - 1)
    with np.errstate(over="ignore"):
        return np.maximum(np.minimum(x * huge * huge, x.dtype.type(1)), x.dtype.type(-1))


sign_p = unary(
    "sign", "-1, 0 or 1 as x; z / |z| of complex numbers.", NUMBER,
    jvp="zero",
    function=_sign,
    facts=(CHEAP, EXACT),
    samples=sampled(1, -3, 3, (F32, I32, C64)))


def _abs_partial(g: Any, out: Any, x: Any) -> Any:
    if is_complex(x):
        safe = add_p.bind(out, convert(eq(out, const(0, out)), out.dtype))
        return real(mul(g, div(conj(x, input_dtype=np.dtype(x.dtype)), convert(safe, x.dtype))))
    nonnegative = convert_like(ge(x, scalar_like(0, x)), x)
    return mul(g, sub(mul(scalar_like(2, x), nonnegative), scalar_like(1, x)))


abs_p = unary(
    "abs", "The absolute value; of complex numbers, real.", (*INEXACT, np.signedinteger),
    result=lambda dtype: np.real(np.zeros((), dtype)).dtype if dtype.kind == "c" else dtype,
    jvp=(_abs_partial,),
    function=np.abs,
    facts=(CHEAP, EXACT),
    samples=sampled(1, -3, 3, (F32, I32, C64)))


# -- maxima and neighbours ------------------------------------------------------------------------

def _selected_share(g: Any, out: Any, x: Any, other: Any) -> Any:
    """The derivative by operand x of an extremum: g where x is the result, half of g where both
    operands are.
    """
    equal = convert_like(eq(x, out), out)
    both = mul(scalar_like(0.5, out), convert_like(eq(other, out), out))
    return mul(g, mul(equal, sub(scalar_like(1, out), both)))


max_p = nary(
    "max", "The larger of x and y; NaN if either is.", (ANY, ANY),
    jvp=(lambda g, out, x, y: _selected_share(g, out, x, y),
         lambda g, out, x, y: _selected_share(g, out, y, x)),
    function=np.maximum,
    facts=(CHEAP, EXACT),
    samples=sampled(2, -3, 3, (F32, I32, bool)))
min_p = nary(
    "min", "The smaller of x and y; NaN if either is.", (ANY, ANY),
    jvp=(lambda g, out, x, y: _selected_share(g, out, x, y),
         lambda g, out, x, y: _selected_share(g, out, y, x)),
    function=np.minimum,
    facts=(CHEAP, EXACT),
    samples=sampled(2, -3, 3, (F32, I32, bool)))

nextafter_p = nary(
    "nextafter", "The float next to x in the direction of y.", (FLOAT, FLOAT),
    function=np.nextafter, arithmetic=False,
    samples=sampled(2, -3, 3, (F64,)))
