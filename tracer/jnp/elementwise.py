"""Elementwise arithmetic of jnp: one operand of any numeric dtype, or two of any two.

Integers become floats where the result is no integer; two operands come to one dtype and rank.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.array import Array
from ...ir.dtypes import finfo, iinfo, issubdtype
from ...ir.op import Op
from ...ir.ops.arithmetic import (
    abs_p,
    add_p,
    ceil_p,
    div_p,
    floor_p,
    max_p,
    min_p,
    mul_p,
    neg_p,
    nextafter_p,
    rem_p,
    round_p,
    sign_p,
    sub_p,
)
from ...ir.ops.bitwise import and_p, or_p, shift_right_logical_p
from ...ir.ops.comparison import eq_p, gt_p, lt_p, ne_p
from ...ir.ops.complex_parts import complex_p, imag_p, real_p
from ...ir.ops.powers import cbrt_p, integer_pow_p, pow_p, sqrt_p, square_p
from ...ir.ops.select import select_n_p
from ...ir.ops.special import bessel_i0e_p
from ...ir.ops.transcendental import (
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
    sin_p,
    sinh_p,
    tan_p,
    tanh_p,
)
from .. import lax
from ..broadcasting import select_of
from ..constants import as_array
from ..dtype_promotion import (
    BOOL,
    INEXACT,
    LEVEL,
    check_arraylike,
    convert,
    dtype_name,
    int_default,
    promote_args,
    promote_args_inexact,
    promote_args_numeric,
    promote_dtypes_inexact,
    promote_dtypes_numeric,
    promote_pair,
    promote_pair_inexact,
    to_inexact,
)


def _named(f: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc + " Source: numpy's function of the same name."
    return f


# -- one operand -----------------------------------------------------------------------------------

def _inexact(name: str, op: Op, doc: str) -> Callable[..., Any]:
    """A function whose result is a float or complex; integers and bool become floats."""
    bind = op.bind

    def f(x, /):
        if not (isinstance(x, Array) and x.aval.dtype in INEXACT):
            (x,) = promote_args_inexact(name, x)
        return bind(x)

    return _named(f, name, doc)


def _same(name: str, op: Op, doc: str) -> Callable[..., Any]:
    """A function whose result has the operand's dtype."""
    bind = op.bind

    def f(x, /):
        if not isinstance(x, Array):
            (x,) = promote_args(name, x)
        return bind(x)

    return _named(f, name, doc)


acos = _inexact("acos", acos_p, "Inverse cosine.")
asin = _inexact("asin", asin_p, "Inverse sine.")
asinh = _inexact("asinh", asinh_p, "Inverse hyperbolic sine.")
atan = _inexact("atan", atan_p, "Inverse tangent.")
atanh = _inexact("atanh", atanh_p, "Inverse hyperbolic tangent.")
cbrt = _inexact("cbrt", cbrt_p, "Cube root.")
cos = _inexact("cos", cos_p, "Cosine.")
cosh = _inexact("cosh", cosh_p, "Hyperbolic cosine.")
exp = _inexact("exp", exp_p, "Exponential.")
exp2 = _inexact("exp2", exp2_p, "Power of 2.")
expm1 = _inexact("expm1", expm1_p, "exp(x) - 1, accurate near 0.")
log = _inexact("log", log_p, "Natural logarithm.")
log1p = _inexact("log1p", log1p_p, "log(1 + x), accurate near 0.")
sin = _inexact("sin", sin_p, "Sine.")
sinh = _inexact("sinh", sinh_p, "Hyperbolic sine.")
sqrt = _inexact("sqrt", sqrt_p, "Square root.")
tan = _inexact("tan", tan_p, "Tangent.")
tanh = _inexact("tanh", tanh_p, "Hyperbolic tangent.")
arccos = _inexact("arccos", acos_p, "Inverse cosine.")
arcsin = _inexact("arcsin", asin_p, "Inverse sine.")
arcsinh = _inexact("arcsinh", asinh_p, "Inverse hyperbolic sine.")
arctan = _inexact("arctan", atan_p, "Inverse tangent.")
arctanh = _inexact("arctanh", atanh_p, "Inverse hyperbolic tangent.")
negative_function = _same("negative", neg_p, "-x.")
sign = _same("sign", sign_p, "-1, 0 or 1; x / abs(x) for complex x.")


def acosh(x, /):
    """Inverse hyperbolic cosine; of complex x the branch with a real part that is not negative."""
    (x,) = promote_args_inexact("acosh", x)
    result = acosh_p.bind(x)
    if LEVEL[dtype_name(result)] == 3:
        negative = lt_p.bind(real_p.bind(result), _zero(real_dtype(dtype_name(result))))
        result = select_n_p.bind(negative, result, neg_p.bind(result))
    return result


def arccosh(x, /):
    """Inverse hyperbolic cosine; of complex x the branch with a real part that is not negative."""
    return acosh(x)


def real_dtype(dtype: Any) -> np.dtype:
    """The dtype of the parts of a complex dtype; others as they are."""
    return {np.dtype("complex64"): np.dtype("float32"),
            np.dtype("complex128"): np.dtype("float64")}.get(dtype, dtype)


def _zero(dtype: Any) -> Any:
    return dtype.type(0)


def abs(x, /):
    """Absolute value; real for complex x."""
    return absolute(x)


def absolute(x, /):
    """Absolute value; real for complex x."""
    check_arraylike("absolute", x)
    dtype = dtype_name(x)
    if dtype == BOOL or issubdtype(dtype, np.unsignedinteger):
        return as_array(x)
    return abs_p.bind(x)


def fabs(x, /):
    """Absolute value as a float; raises TypeError for complex x."""
    check_arraylike("fabs", x)
    if LEVEL[dtype_name(x)] == 3:
        raise TypeError("ufunc 'fabs' does not support complex dtypes")
    return abs_p.bind(*promote_args_inexact("fabs", x))


def positive(x, /):
    """x itself."""
    (x,) = promote_args("positive", x)
    return as_array(x)


def _rounding(name: str, op: Op, doc: str) -> Callable[..., Any]:
    def f(x, /):
        check_arraylike(name, x)
        if LEVEL[dtype_name(x)] < 2:
            return as_array(x)
        return op.bind(*promote_args_inexact(name, x))

    return _named(f, name, doc)


ceil = _rounding("ceil", ceil_p, "Least integer that is not less, as a float.")
floor = _rounding("floor", floor_p, "Greatest integer that is not greater, as a float.")


def trunc(x):
    """x rounded towards zero."""
    check_arraylike("trunc", x)
    dtype = dtype_name(x)
    if LEVEL[dtype] < 2:
        return as_array(x)
    negative, up = lt_p.bind(x, _literal(0, x)), ceil_p.bind(x)
    return select_n_p.bind(negative, floor_p.bind(x), up)


def _literal(value: Any, x: Any) -> Any:
    """A scalar of the dtype (and weak flag) of x."""
    weak = isinstance(x, Array) and x.aval.weak_type
    return convert(value, dtype_name(x), weak)


def round(a, decimals=0, out=None):
    """a rounded to decimals digits behind the point (before it, if negative), halves to even."""
    check_arraylike("round", a)
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.round is not supported.")
    decimals = decimals.__index__()
    dtype = dtype_name(a)
    level = LEVEL[dtype]
    if level == 0:
        raise ValueError(f"data type {dtype.type} not inexact")
    if level == 1:
        if decimals < 0:
            raise NotImplementedError(
                "integer np.round not implemented for decimals < 0")
        return as_array(a)
    if level == 3:
        return complex_p.bind(_round_float(real_p.bind(a), decimals),
                              _round_float(imag_p.bind(a), decimals))
    return _round_float(a, decimals)


def _round_float(x: Any, decimals: int) -> Any:
    if decimals == 0:
        return round_p.bind(x, rounding_method=lax.RoundingMethod.TO_NEAREST_EVEN)
    dtype = dtype_name(x)
    factor = _literal(10.0 ** decimals, x)
    wide = dtype.itemsize < 4
    if wide:
        x = convert(x, np.dtype("float32"))
        factor = np.float32(10.0 ** decimals)
    scaled = round_p.bind(mul_p.bind(x, factor),
                          rounding_method=lax.RoundingMethod.TO_NEAREST_EVEN)
    out = div_p.bind(scaled, factor)
    return convert(out, dtype) if wide else out


def around(a, decimals=0, out=None):
    """a rounded to decimals digits behind the point, halves to even."""
    return round(a, decimals, out)


def rint(x, /):
    """x rounded to integers, halves to even, as a float."""
    check_arraylike("rint", x)
    dtype = dtype_name(x)
    if LEVEL[dtype] < 2:
        return convert(as_array(x), to_inexact(dtype))
    return round(x)


def square(x, /):
    """x * x."""
    (x,) = promote_dtypes_numeric(*promote_args("square", x))
    return square_p.bind(x)


def reciprocal(x, /):
    """1 / x."""
    return integer_pow_p.bind(*promote_args_inexact("reciprocal", x), y=-1)


def log2(x, /):
    """Logarithm to base 2."""
    (x,) = promote_args_inexact("log2", x)
    if LEVEL[dtype_name(x)] == 3:
        value = log_p.bind(x)
        two = log_p.bind(real_dtype(dtype_name(x)).type(2))
        real, imag = real_p.bind(value), imag_p.bind(value)
        return complex_p.bind(div_p.bind(real, two), div_p.bind(imag, two))
    return div_p.bind(log_p.bind(x), log_p.bind(_literal(2, x)))


def log10(x, /):
    """Logarithm to base 10."""
    (x,) = promote_args_inexact("log10", x)
    factor = 1 / np.log(10)
    value = log_p.bind(x)
    if LEVEL[dtype_name(x)] == 3:
        part = real_dtype(dtype_name(x)).type(factor)
        real, imag = real_p.bind(value), imag_p.bind(value)
        return complex_p.bind(mul_p.bind(real, part), mul_p.bind(imag, part))
    return mul_p.bind(value, _literal(factor, x))


def _scaled(name: str, factor: float, doc: str) -> Callable[..., Any]:
    def f(x, /):
        (x,) = promote_args_inexact(name, x)
        return mul_p.bind(x, _literal(factor, x))

    return _named(f, name, doc)


degrees = _scaled("degrees", 180 / np.pi, "Radians as degrees.")
rad2deg = _scaled("rad2deg", 180 / np.pi, "Radians as degrees.")
deg2rad = _scaled("deg2rad", np.pi / 180, "Degrees as radians.")
radians = _scaled("radians", np.pi / 180, "Degrees as radians.")


def sinc(x, /):
    """sin(pi x) / (pi x), and 1 at 0, with derivatives that are right there too."""
    (x,) = promote_args_inexact("sinc", x)
    at_zero = eq_p.bind(x, _literal(0, x))
    pi_x = mul_p.bind(_literal(np.pi, x), x)
    safe = select_of(at_zero, pi_x, _literal(1, x))
    near = add_p.bind(mul_p.bind(pi_x, _literal(0, x)), _literal(1, x))
    return select_n_p.bind(at_zero, div_p.bind(sin_p.bind(safe), safe), near)


def i0(x):
    """Modified Bessel function of the first kind, order 0."""
    (x,) = promote_args_inexact("i0", x)
    if not issubdtype(dtype_name(x), np.floating):
        raise ValueError(f"Unsupported input type to jax.numpy.i0: {dtype_name(x)}")
    x = abs_p.bind(x)
    return mul_p.bind(exp_p.bind(x), bessel_i0e_p.bind(x))


# -- two operands ----------------------------------------------------------------------------------

def _binary(name: str, op: Op, doc: str, bool_op: Op | None = None) -> Callable[..., Any]:
    """A function of two operands of one dtype; bool_op takes its place for bool."""
    bind = op.bind
    bool_bind = None if bool_op is None else bool_op.bind

    def f(x, y, /):
        x, y = promote_pair(name, x, y)
        if bool_bind is not None and getattr(x, "dtype", None) == BOOL:
            return bool_bind(x, y)
        return bind(x, y)

    return _named(f, name, doc)


def _binary_inexact(name: str, op: Op, doc: str) -> Callable[..., Any]:
    bind = op.bind

    def f(x1, x2, /):
        x1, x2 = promote_pair_inexact(name, x1, x2)
        return bind(x1, x2)

    return _named(f, name, doc)


add_function = _binary("add", add_p, "x + y; `or` for bool.", or_p)
subtract_function = _binary("subtract", sub_p, "x - y.")
multiply_function = _binary("multiply", mul_p, "x * y; `and` for bool.", and_p)
maximum_function = _binary("maximum", max_p, "The greater of x and y; NaN where one is.")
minimum_function = _binary("minimum", min_p, "The lesser of x and y; NaN where one is.")
divide = _binary_inexact("divide", div_p, "x1 / x2, a float.")
true_divide = _binary_inexact("true_divide", div_p, "x1 / x2, a float.")
arctan2 = _binary_inexact("arctan2", atan2_p, "Angle of the point (x2, x1).")
atan2 = _binary_inexact("atan2", atan2_p, "Angle of the point (x2, x1).")


def nextafter(x, y, /):
    """The next number after x towards y."""
    x, y = promote_pair_inexact("nextafter", x, y)
    return nextafter_p.bind(x, y)


def floor_divide(x1, x2, /):
    """x1 / x2 rounded down."""
    x1, x2 = promote_args_numeric("floor_divide", x1, x2)
    dtype = dtype_name(x1)
    if issubdtype(dtype, np.unsignedinteger):
        return div_p.bind(x1, x2)
    if issubdtype(dtype, np.integer):
        quotient = div_p.bind(x1, x2)
        differ = ne_p.bind(sign_p.bind(x1), sign_p.bind(x2))
        inexact = ne_p.bind(rem_p.bind(x1, x2), _literal(0, quotient))
        below = and_p.bind(differ, inexact)
        return select_n_p.bind(below, quotient, sub_p.bind(quotient, _literal(1, quotient)))
    if LEVEL[dtype] == 3:
        raise TypeError("floor_divide does not support complex-valued inputs")
    return _float_divmod(x1, x2)[0]


def _float_divmod(x1: Any, x2: Any) -> tuple[Any, Any]:
    zero = _literal(0, x1 if isinstance(x1, Array) else x2)
    one = _literal(1, x1 if isinstance(x1, Array) else x2)
    mod = rem_p.bind(x1, x2)
    by_zero = eq_p.bind(x2, zero)
    exact = sub_p.bind(x1, mod)
    numerator = select_of(by_zero, exact, x1)
    quotient = div_p.bind(numerator, x2)
    low = and_p.bind(ne_p.bind(mod, zero), ne_p.bind(sign_p.bind(x2), sign_p.bind(mod)))
    mod = select_n_p.bind(low, mod, add_p.bind(mod, x2))
    quotient = select_n_p.bind(low, quotient, sub_p.bind(quotient, one))
    return round_p.bind(quotient, rounding_method=lax.RoundingMethod.AWAY_FROM_ZERO), mod


def divmod(x1, x2, /):
    """`(x1 // x2, x1 % x2)`."""
    x1, x2 = promote_args_numeric("divmod", x1, x2)
    if issubdtype(dtype_name(x1), np.integer):
        return floor_divide(x1, x2), remainder(x1, x2)
    return _float_divmod(x1, x2)


def remainder(x1, x2, /):
    """x1 - floor(x1 / x2) * x2: the remainder with the sign of x2."""
    x1, x2 = promote_args_numeric("remainder", x1, x2)
    x2 = _nonzero_divisor(x1, x2)
    zero = _literal(0, x1 if isinstance(x1, Array) else x2)
    mod = rem_p.bind(x1, x2)
    not_zero = ne_p.bind(mod, zero)
    differ = ne_p.bind(lt_p.bind(mod, zero), lt_p.bind(x2, zero))
    return select_n_p.bind(and_p.bind(differ, not_zero), mod, add_p.bind(mod, x2))


def _nonzero_divisor(x1: Any, x2: Any) -> Any:
    """Integer division by zero is left to the machine; dividing by 1 gives remainder 0."""
    if not issubdtype(dtype_name(x1), np.integer):
        return x2
    if not isinstance(x2, Array) and not np.ndim(x2):
        return x2 if x2 != 0 else _literal(1, x1)
    return select_of(eq_p.bind(x2, _literal(0, x2)), x2, _literal(1, x2))


def mod(x1, x2, /):
    """x1 - floor(x1 / x2) * x2: the remainder with the sign of x2."""
    return remainder(x1, x2)


def fmod(x1, x2, /):
    """The remainder of x1 / x2 with the sign of x1."""
    check_arraylike("fmod", x1, x2)
    x1, x2 = promote_args_numeric("fmod", x1, x2)
    return rem_p.bind(x1, _nonzero_divisor(x1, x2))


def power(x1, x2, /):
    """x1 ** x2. An integer known while tracing gives repeated multiplication.

    Integers to the power of integers are computed by squaring; a negative one gives nothing
    meaningful, and is an error if it is known while tracing.
    """
    check_arraylike("power", x1, x2)
    exponent = x2 if type(x2) is int else _static_integer(x2)
    if exponent is not None:
        (x1,) = promote_args("power", x1)
        if dtype_name(x1) == BOOL:
            x1 = convert(x1, int_default())
        return integer_pow_p.bind(x1, y=exponent)
    own1, own2 = dtype_name(x1), dtype_name(x2)
    if LEVEL[own1] >= 2 and LEVEL[own2] == 1 and isinstance(x2, Array):
        x1, x2 = promote_shapes("power", x1, x2)
        return pow_p.bind(x1, x2)
    if LEVEL[own1] < 2 and LEVEL[own2] < 2:
        x1, x2 = promote_args_numeric("power", x1, x2)
        return _integer_power(x1, x2)
    x1, x2 = promote_args_numeric("power", x1, x2)
    return pow_p.bind(x1, x2)


def _static_integer(x: Any) -> int | None:
    """The value of an integer (or bool) that is no Array, None for others."""
    if isinstance(x, Array) or np.ndim(x) or not hasattr(x, "__index__"):
        return None
    whole = isinstance(x, bool) or np.issubdtype(x.dtype, np.integer) or x.dtype == BOOL
    return int(x) if whole else None


def _integer_power(x1: Any, x2: Any) -> Any:
    """x1 ** x2 of integers: six squarings, for exponents below 64."""
    dtype = dtype_name(x1)
    zero, one = dtype.type(0), dtype.type(1)
    base_zero = and_p.bind(eq_p.bind(x1, zero), ne_p.bind(x2, zero))
    result = select_n_p.bind(base_zero, lax.full_like(base_zero, one, dtype),
                             lax.full_like(base_zero, zero, dtype))
    for step in range(6):
        bit, more = and_p.bind(x2, one), mul_p.bind(result, x1)
        result = select_of(ne_p.bind(bit, zero), result, more)
        if step < 5:
            x1 = mul_p.bind(x1, x1)
            x2 = shift_right_logical_p.bind(x2, one)
    return result


def pow(x1, x2, /):
    """x1 ** x2."""
    return power(x1, x2)


def float_power(x, y, /):
    """x ** y of floats."""
    return pow_p.bind(*promote_args_inexact("float_power", x, y))


def logaddexp_function(x1, x2, /):
    """log(exp(x1) + exp(x2)), without overflow."""
    x1, x2 = promote_args_inexact("logaddexp", x1, x2)
    return _logaddexp(x1, x2, exp_p, None)


def logaddexp2_function(x1, x2, /):
    """log2(2 ** x1 + 2 ** x2), without overflow."""
    x1, x2 = promote_args_inexact("logaddexp2", x1, x2)
    return _logaddexp(x1, x2, exp2_p, 1 / np.log(2))


def _logaddexp(x1: Any, x2: Any, power_op: Op, scale: float | None) -> Any:
    top = max_p.bind(x1, x2)

    def log1p_scaled(v: Any) -> Any:
        v = log1p_p.bind(power_op.bind(v))
        return v if scale is None else mul_p.bind(_literal(scale, top), v)

    if LEVEL[dtype_name(top)] == 3:
        total = sub_p.bind(add_p.bind(x1, x2), mul_p.bind(top, _literal(2, top)))
        out = add_p.bind(top, log1p_scaled(total))
        half = np.pi if scale is None else np.pi * scale
        return complex_p.bind(real_p.bind(out), _wrap_between(imag_p.bind(out), half))
    delta = sub_p.bind(x1, x2)
    undefined, total = ne_p.bind(delta, delta), add_p.bind(x1, x2)
    inner = log1p_scaled(neg_p.bind(abs_p.bind(delta)))
    return select_n_p.bind(undefined, add_p.bind(top, inner), total)


def _wrap_between(x: Any, half: float) -> Any:
    """x brought between -half and half by multiples of 2 half."""
    dtype = dtype_name(x)
    a, two_a, zero = dtype.type(half), dtype.type(2 * half), dtype.type(0)
    rem = rem_p.bind(add_p.bind(x, a), two_a)
    rem = select_n_p.bind(lt_p.bind(rem, zero), rem, add_p.bind(rem, two_a))
    return sub_p.bind(rem, a)


def hypot(x1, x2, /):
    """sqrt(x1 ** 2 + x2 ** 2), without overflow."""
    x1, x2 = promote_args_inexact("hypot", x1, x2)
    if LEVEL[dtype_name(x1)] == 3:
        raise ValueError("jnp.hypot is not well defined for complex-valued inputs. Please convert "
                         "to real values first, such as by using abs(x)")
    x1, x2 = abs_p.bind(x1), abs_p.bind(x2)
    inf = _literal(np.inf, x1)
    infinite = or_p.bind(eq_p.bind(x1, inf), eq_p.bind(x2, inf))
    high, low = max_p.bind(x1, x2), min_p.bind(x1, x2)
    zero, one = _literal(0, high), _literal(1, high)
    is_zero = eq_p.bind(high, zero)
    ratio = div_p.bind(low, select_of(eq_p.bind(high, zero), high, one))
    length = mul_p.bind(high, sqrt_p.bind(add_p.bind(one, square_p.bind(ratio))))
    return select_of(infinite, select_n_p.bind(is_zero, length, high), inf)


def heaviside(x1, x2, /):
    """0 where x1 is negative, 1 where positive, x2 where zero."""
    check_arraylike("heaviside", x1, x2)
    x1, x2 = promote_args_inexact("heaviside", x1, x2)
    zero, one = _literal(0, x1), _literal(1, x1)
    negative, greater = lt_p.bind(x1, zero), gt_p.bind(x1, zero)
    at_zero = select_of(ne_p.bind(x1, x1), x2, x1)
    return select_of(negative, select_of(greater, at_zero, one), zero)


def clip(arr=None, /, min=None, max=None):
    """arr kept between min and max, either of which may be None."""
    if arr is None:
        raise ValueError("No input was provided to the clip function.")
    check_arraylike("clip", arr)
    for bound in (arr, min, max):
        if bound is not None and LEVEL.get(dtype_name(bound)) == 3:
            raise ValueError("Clip received a complex value either through the input or the "
                             "min/max keywords. Complex values have no ordering and cannot be "
                             "clipped. Please convert to a real value or array by taking the real "
                             "or imaginary components via jax.numpy.real/imag respectively.")
    if min is not None:
        arr = maximum_function(min, arr)
    if max is not None:
        arr = minimum_function(max, arr)
    return as_array(arr)


def extreme_values(dtype: Any) -> tuple[Any, Any]:
    """Least and greatest finite value of a real dtype."""
    info = finfo(dtype) if issubdtype(dtype, np.floating) else iinfo(dtype)
    return info.min, info.max


def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """x with NaN replaced by a number, and infinities by the extreme finite values or those given.
    """
    check_arraylike("nan_to_num", x)
    dtype = dtype_name(x)
    if LEVEL[dtype] < 2:
        return as_array(x)
    if LEVEL[dtype] == 3:
        return complex_p.bind(nan_to_num(real_p.bind(x), copy, nan, posinf, neginf),
                              nan_to_num(imag_p.bind(x), copy, nan, posinf, neginf))
    low, high = extreme_values(dtype)
    posinf = high if posinf is None else posinf
    neginf = low if neginf is None else neginf
    (x,) = promote_dtypes_inexact(x)
    out = select_of(ne_p.bind(x, x), x, convert(nan, dtype))
    out = select_of(eq_p.bind(out, _literal(np.inf, out)), out, convert(posinf, dtype))
    return select_of(eq_p.bind(out, _literal(-np.inf, out)), out, convert(neginf, dtype))
