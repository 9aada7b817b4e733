"""Elementwise arithmetic of jnp: one operand of any numeric dtype, or two of any two.

Integers become floats where the result is no integer; two operands come to one dtype and rank.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.array import Array
from ...ir.dtypes import finfo, iinfo, issubdtype
from ...ir.op import Op
from ...ir.ops.arithmetic import (
    abs_p,
    add_p,
    div_p,
    max_p,
    min_p,
    mul_p,
    neg_p,
    nextafter_p,
    sign_p,
    sub_p,
)
from ...ir.ops.bitwise import and_p, or_p
from ...ir.ops.comparison import eq_p, gt_p, lt_p, ne_p
from ...ir.ops.complex_parts import complex_p, imag_p, real_p
from ...ir.ops.powers import cbrt_p, sqrt_p, square_p
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
from ..autodiff.custom_jvp import custom_jvp
from ..operands.broadcasting import select_of
from ..operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    promote_args,
    promote_args_inexact,
    promote_dtypes_inexact,
    promote_dtypes_numeric,
    promote_pair,
    promote_pair_inexact,
)
from ..operands.scalars import BOOL, INEXACT, LEVEL
from ..staging.constants import as_array
from ..staging.tracer import Tracer


def named(f: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc + " Source: numpy's function of the same name."
    return f


# -- one operand -----------------------------------------------------------------------------------

def _inexact(name: str, op: Op, doc: str) -> Callable[..., Any]:
    """A function whose result is a float or complex; integers and bool become floats."""
    bind = op.bind

    def f(x, /):
        if not ((type(x) is Tracer or isinstance(x, Array)) and x.aval.dtype in INEXACT):
            (x,) = promote_args_inexact(name, x)
        return bind(x)

    return named(f, name, doc)


def _same(name: str, op: Op, doc: str) -> Callable[..., Any]:
    """A function whose result has the operand's dtype."""
    bind = op.bind

    def f(x, /):
        if not isinstance(x, Array):
            (x,) = promote_args(name, x)
        return bind(x)

    return named(f, name, doc)


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


def literal_like(value: Any, x: Any) -> Any:
    """A scalar of the dtype (and weak flag) of x."""
    weak = isinstance(x, Array) and x.aval.weak_type
    return convert(value, dtype_name(x), weak)


def square(x, /):
    """x * x."""
    (x,) = promote_dtypes_numeric(*promote_args("square", x))
    return square_p.bind(x)


def _scaled(name: str, factor: float, doc: str) -> Callable[..., Any]:
    def f(x, /):
        (x,) = promote_args_inexact(name, x)
        return mul_p.bind(x, literal_like(factor, x))

    return named(f, name, doc)


degrees = _scaled("degrees", 180 / np.pi, "Radians as degrees.")
rad2deg = _scaled("rad2deg", 180 / np.pi, "Radians as degrees.")
deg2rad = _scaled("deg2rad", np.pi / 180, "Degrees as radians.")
radians = _scaled("radians", np.pi / 180, "Degrees as radians.")


def sinc(x, /):
    """sin(pi x) / (pi x), and 1 at 0, with derivatives that are right there too."""
    (x,) = promote_args_inexact("sinc", x)
    at_zero = eq_p.bind(x, literal_like(0, x))
    pi_x = mul_p.bind(literal_like(np.pi, x), x)
    safe = select_of(at_zero, pi_x, literal_like(1, x))
    near = _sinc_near_zero(0, pi_x)
    return select_n_p.bind(at_zero, div_p.bind(sin_p.bind(safe), safe), near)


@functools.partial(custom_jvp, nondiff_argnums=(0,))
def _sinc_near_zero(k: int, x: Any) -> Any:
    """The k-th derivative of sin(x) / x at 0, in the shape of x."""
    value = 0.0 if k % 2 else (-1) ** (k // 2) / (k + 1)
    return add_p.bind(mul_p.bind(x, literal_like(0, x)), literal_like(value, x))


@_sinc_near_zero.defjvp
def _(k: int, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    return _sinc_near_zero(k, x), mul_p.bind(_sinc_near_zero(k + 1, x), t)


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
        if type(x) is not Tracer or type(y) is not Tracer or x.aval is not y.aval:
            x, y = promote_pair(name, x, y)
        if bool_bind is not None and (x.aval.dtype if type(x) is Tracer or isinstance(x, Array)
                                      else getattr(x, "dtype", None)) == BOOL:
            return bool_bind(x, y)
        return bind(x, y)

    return named(f, name, doc)


def _binary_inexact(name: str, op: Op, doc: str) -> Callable[..., Any]:
    bind = op.bind

    def f(x1, x2, /):
        x1, x2 = promote_pair_inexact(name, x1, x2)
        return bind(x1, x2)

    return named(f, name, doc)


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


def heaviside(x1, x2, /):
    """0 where x1 is negative, 1 where positive, x2 where zero."""
    check_arraylike("heaviside", x1, x2)
    x1, x2 = promote_args_inexact("heaviside", x1, x2)
    zero, one = literal_like(0, x1), literal_like(1, x1)
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
    out = select_of(eq_p.bind(out, literal_like(np.inf, out)), out, convert(posinf, dtype))
    return select_of(eq_p.bind(out, literal_like(-np.inf, out)), out, convert(neginf, dtype))
