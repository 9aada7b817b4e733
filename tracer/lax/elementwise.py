"""Elementwise functions of lax: one op each, operands of one dtype and shape (or scalars).

Nothing is promoted here: `lax.add(f32, i32)` is an error of the op, as in JAX; that is what the
numpy layer is for. Scalars stay scalars, ranks must match otherwise.
"""
from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any

from ...ir.op import Op
from ...ir.ops.elementwise.arithmetic import (
    RoundingMethod,
    abs_p,
    add_p,
    ceil_p,
    div_p,
    floor_p,
    max_p,
    min_p,
    mul_p,
    mulhi_p,
    neg_p,
    nextafter_p,
    rem_p,
    round_p,
    sign_p,
    sub_p,
)
from ...ir.ops.elementwise.bitwise import (
    and_p,
    clz_p,
    not_p,
    or_p,
    population_count_p,
    shift_left_p,
    shift_right_arithmetic_p,
    shift_right_logical_p,
    xor_p,
)
from ...ir.ops.elementwise.comparison import eq_p, ge_p, gt_p, is_finite_p, le_p, lt_p, ne_p
from ...ir.ops.elementwise.complex_parts import complex_p, conj_p, imag_p, real_p
from ...ir.ops.elementwise.powers import cbrt_p, integer_pow_p, pow_p, rsqrt_p, sqrt_p, square_p
from ...ir.ops.elementwise.select import clamp_p, select_n_p
from ...ir.ops.elementwise.special import (
    bessel_i0e_p,
    bessel_i1e_p,
    digamma_p,
    erf_inv_p,
    erf_p,
    erfc_p,
    lgamma_p,
)
from ...ir.ops.elementwise.transcendental import (
    acos_p,
    acosh_p,
    asin_p,
    asinh_p,
    atan2_p,
    atan_p,
    atanh_p,
    cos_p,
    cosh_p,
    exp2_p,
    exp_p,
    expm1_p,
    log1p_p,
    log_p,
    logistic_p,
    sin_p,
    sinh_p,
    tan_p,
    tanh_p,
)
from ...ir.param_types import register_param_type
from ...ir.support.immutable import immutable
from .. import sharding_notes
from ..operands.dtype_promotion import dtype_name, user_dtype

__all__ = [
    "AccuracyMode", "RoundingMethod", "Tolerance", "abs", "acos", "acosh", "add", "asin", "asinh",
    "atan", "atan2", "atanh", "bessel_i0e", "bessel_i1e", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "cbrt", "ceil", "clamp", "clz", "complex", "conj", "cos", "cosh",
    "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "imag", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max",
    "min", "mul", "mulhi", "ne", "neg", "nextafter", "population_count", "pow", "real",
    "reciprocal", "rem", "round", "rsqrt", "select", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "sub",
    "tan", "tanh",
]


@register_param_type
@immutable
class Tolerance:
    """Requested accuracy of a function: absolute, relative and in units of the last place."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __post_init__(self) -> None:
        if self.rtol < 0.0 or self.atol < 0.0 or self.ulps < 0:
            raise ValueError("Tolerances must be non-negative.")


@register_param_type
class AccuracyMode(enum.Enum):
    """The accuracy asked of a function: the best there is (HIGHEST), or the usual one (DEFAULT)."""

    HIGHEST = 1
    DEFAULT = 2


def _named(f: Callable[..., Any], op: Op, name: str, doc: str) -> Callable[..., Any]:
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"{doc} Elementwise: the op `{op.name}`, of operands of one dtype and shape."
    return sharding_notes.elementwise(f)


def _unary(op: Op, doc: str, name: str = "") -> Callable[..., Any]:
    bind = op.bind

    def f(x):
        return bind(x)

    return _named(f, op, name or op.name, doc)


def _accurate(op: Op, doc: str) -> Callable[..., Any]:
    bind = op.bind

    def f(x, *, accuracy=None):
        return bind(x) if accuracy is None else bind(x, accuracy=accuracy)

    return _named(f, op, op.name, doc)


def _binary(op: Op, doc: str, name: str = "") -> Callable[..., Any]:
    bind = op.bind

    def f(x, y):
        return bind(x, y)

    return _named(f, op, name or op.name, doc)


abs = _unary(abs_p, "Absolute value; real for complex x.")
acos = _unary(acos_p, "Inverse cosine.")
acosh = _unary(acosh_p, "Inverse hyperbolic cosine.")
asin = _unary(asin_p, "Inverse sine.")
asinh = _unary(asinh_p, "Inverse hyperbolic sine.")
atan = _unary(atan_p, "Inverse tangent.")
atanh = _unary(atanh_p, "Inverse hyperbolic tangent.")
bessel_i0e = _unary(bessel_i0e_p, "Scaled modified Bessel function of order 0.")
bessel_i1e = _unary(bessel_i1e_p, "Scaled modified Bessel function of order 1.")
bitwise_not = _unary(not_p, "Bitwise complement; logical for bool.", "bitwise_not")
cbrt = _accurate(cbrt_p, "Cube root.")
ceil = _unary(ceil_p, "Least integer that is not less.")
clz = _unary(clz_p, "Number of leading zero bits.")
cos = _accurate(cos_p, "Cosine.")
cosh = _unary(cosh_p, "Hyperbolic cosine.")
digamma = _unary(digamma_p, "Logarithmic derivative of the gamma function.")
erf = _unary(erf_p, "Error function.")
erf_inv = _unary(erf_inv_p, "Inverse of the error function.")
erfc = _unary(erfc_p, "1 - erf(x), accurate for large x.")
exp = _accurate(exp_p, "Exponential.")
exp2 = _accurate(exp2_p, "Power of 2.")
expm1 = _accurate(expm1_p, "exp(x) - 1, accurate near 0.")
floor = _unary(floor_p, "Greatest integer that is not greater.")
imag = _unary(imag_p, "Imaginary part of complex x.")
is_finite = _unary(is_finite_p, "Whether neither infinite nor NaN.")
lgamma = _unary(lgamma_p, "Logarithm of the absolute value of the gamma function.")
log = _accurate(log_p, "Natural logarithm.")
log1p = _accurate(log1p_p, "log(1 + x), accurate near 0.")
logistic = _accurate(logistic_p, "Logistic function 1 / (1 + exp(-x)).")
neg = _unary(neg_p, "Negative.")
population_count = _unary(population_count_p, "Number of bits that are set.")
real = _unary(real_p, "Real part of complex x.")
rsqrt = _accurate(rsqrt_p, "Reciprocal of the square root.")
sign = _unary(sign_p, "-1, 0 or 1; x / abs(x) for complex x.")
sin = _accurate(sin_p, "Sine.")
sinh = _unary(sinh_p, "Hyperbolic sine.")
sqrt = _accurate(sqrt_p, "Square root.")
square = _unary(square_p, "Square.")
tan = _accurate(tan_p, "Tangent.")
tanh = _accurate(tanh_p, "Hyperbolic tangent.")

add = _binary(add_p, "Sum.")
atan2 = _binary(atan2_p, "Angle of the point (y, x), given x as the first operand.")
bitwise_and = _binary(and_p, "Bitwise and; logical for bool.", "bitwise_and")
bitwise_or = _binary(or_p, "Bitwise or; logical for bool.", "bitwise_or")
bitwise_xor = _binary(xor_p, "Bitwise exclusive or; logical for bool.", "bitwise_xor")
complex = _binary(complex_p, "Complex number of a real and an imaginary part.")
div = _binary(div_p, "Quotient; integers round towards zero.")
eq = _binary(eq_p, "Whether equal.")
ge = _binary(ge_p, "Whether greater or equal.")
gt = _binary(gt_p, "Whether greater.")
le = _binary(le_p, "Whether less or equal.")
lt = _binary(lt_p, "Whether less.")
max = _binary(max_p, "Maximum; complex numbers by real part, then imaginary part.")
min = _binary(min_p, "Minimum; complex numbers by real part, then imaginary part.")
ne = _binary(ne_p, "Whether not equal.")
pow = _binary(pow_p, "Power; y may be an integer beside a float x.")
rem = _binary(rem_p, "Remainder with the sign of the dividend.")
shift_left = _binary(shift_left_p, "Bits shifted to the left.")
shift_right_arithmetic = _binary(
    shift_right_arithmetic_p, "Bits shifted to the right, the sign bit filling in.")
shift_right_logical = _binary(
    shift_right_logical_p, "Bits shifted to the right, zeros filling in.")
sub = _binary(sub_p, "Difference.")


def nextafter(x1, x2):
    """The next number after x1 in the direction of x2, elementwise; both of one float dtype."""
    return nextafter_p.bind(x1, x2)


def mul(x, y, *, out_dtype=None):
    """Product. out_dtype: another dtype for the result, in which the product is computed."""
    if out_dtype is None:
        return mul_p.bind(x, y)
    return mul_p.bind(x, y, out_dtype=user_dtype(out_dtype, "mul"))


def integer_pow(x, y):
    """x ** y for a Python int y, by repeated multiplication.

    Raises TypeError for a negative power of integers.
    """
    return integer_pow_p.bind(x, y=operator.index(y))


def mulhi(x, y, /):
    """The upper half of the bits of the product of two integers, elementwise."""
    return mulhi_p.bind(x, y)


def reciprocal(x):
    """1 / x, elementwise, of a float or complex x; at 0 it is infinite."""
    return integer_pow_p.bind(x, y=-1)


def conj(x):
    """Complex conjugate, of real or complex x; the result is complex."""
    return conj_p.bind(x, input_dtype=dtype_name(x))


def round(x, rounding_method=RoundingMethod.AWAY_FROM_ZERO):
    """x rounded to integers, elementwise, in its own dtype; halves as `rounding_method` says."""
    return round_p.bind(x, rounding_method=RoundingMethod(rounding_method))


def clamp(min, x, max):
    """x kept between min and max, which are scalars or of the shape of x."""
    return clamp_p.bind(min, x, max)


def select_n(which, *cases):
    """For each element the case that `which` (bool, or int32 from 0) names.

    which: scalar, or of the shape of the cases; the cases are of one type, sharding included.
    """
    if not cases:
        raise ValueError("select_n() must have at least one case")
    return select_n_p.bind(which, *cases)


@sharding_notes.equal
def select(pred, on_true, on_false):
    """`on_true` where `pred` is true, else `on_false`, elementwise.

    on_true and on_false: arrays of one shape and dtype. pred: bool, of that shape or a scalar.

    >>> st.lax.select(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([3, 4]))
    Array([1, 4], dtype=int32)
    """
    return select_n_p.bind(pred, on_false, on_true)
