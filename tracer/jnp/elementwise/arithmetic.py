"""Elementwise arithmetic of jnp on one operand of any numeric dtype.

Integers become floats where the result is not an integer. two_operands.py has the rest.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.dtypes import issubdtype
from ....ir.op import Op
from ....ir.ops.elementwise.arithmetic import (
    abs_p,
    add_p,
    div_p,
    mul_p,
    neg_p,
    sign_p,
)
from ....ir.ops.elementwise.comparison import eq_p, lt_p
from ....ir.ops.elementwise.complex_parts import real_p
from ....ir.ops.elementwise.powers import cbrt_p, sqrt_p, square_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.ops.elementwise.special import bessel_i0e_p, bessel_i1e_p
from ....ir.ops.elementwise.transcendental import (
    acos_p,
    acosh_p,
    asin_p,
    asinh_p,
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
from ....ir.values.array import Array
from ... import sharding_notes
from ...autodiff.custom.custom_jvp import custom_jvp
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    literal_like,
    narrowed,
    promote_args,
    promote_args_inexact,
    promote_dtypes_numeric,
    strong_array,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import BOOL, INEXACT, LEVEL
from ...staging.constants import as_array
from ...staging.tracer import Tracer

__all__ = [
    "abs", "absolute", "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan",
    "arctanh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "deg2rad", "degrees", "exp",
    "exp2", "expm1", "fabs", "i0", "log", "log1p", "positive", "rad2deg", "radians", "sign", "sin",
    "sinc", "sinh", "sqrt", "square", "tan", "tanh",
]


def named(f: Callable[..., Any], name: str, doc: str, *example: str) -> Callable[..., Any]:
    """An elementwise function, its name and docstring; example: a call and the lines it prints."""
    f.__name__ = f.__qualname__ = name
    if f.__code__.co_argcount == 2:
        indent = sharding_notes.INDENT
        doc += f"\n\n{indent}Raises TypeError where the shapes do not broadcast to one."
    f.__doc__ = sharding_notes.with_example(doc, *example)
    return sharding_notes.elementwise(f)


def aliases(family: Callable[..., Callable[..., Any]], name: str, other: str, *declared: Any
            ) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A function of a family under two names, each with the same text."""
    return family(name, *declared), family(other, *declared)


def _inexact(name: str, op: Op, doc: str, *example: str) -> Callable[..., Any]:
    """A function whose result is a float or complex; integers and bool become floats."""
    bind = op.bind

    def f(x, /):
        if not ((type(x) is Tracer or isinstance(x, Array)) and x.aval.dtype in INEXACT):
            (x,) = promote_args_inexact(name, x)
        return bind(x)

    return named(f, name, doc, *example)


def _same(name: str, op: Op, doc: str, *example: str) -> Callable[..., Any]:
    """A function whose result has the operand's dtype."""
    bind = op.bind

    def f(x, /):
        if not isinstance(x, Array):
            (x,) = promote_args(name, x)
        return bind(x)

    return named(f, name, doc, *example)


acos, arccos = aliases(
    _inexact, "acos", "arccos", acos_p,
    "The inverse cosine of x, elementwise: an angle in [0, pi]; NaN outside of [-1, 1].")
asin, arcsin = aliases(
    _inexact, "asin", "arcsin", asin_p,
    "The inverse sine of x, elementwise: an angle in [-pi/2, pi/2]; NaN outside of [-1, 1].")
asinh, arcsinh = aliases(
    _inexact, "asinh", "arcsinh", asinh_p,
    "The inverse hyperbolic sine of x, elementwise; integers give floats.")
atan, arctan = aliases(
    _inexact, "atan", "arctan", atan_p,
    "The inverse tangent of x, elementwise: an angle in [-pi/2, pi/2].")
atanh, arctanh = aliases(
    _inexact, "atanh", "arctanh", atanh_p,
    "The inverse hyperbolic tangent of x, elementwise; NaN outside of [-1, 1].")
cbrt = _inexact(
    "cbrt", cbrt_p,
    "The cube root of x, elementwise; that of a negative number is negative.")
cos = _inexact(
    "cos", cos_p,
    "The cosine of x, in radians, elementwise; integers give floats.",
    "jnp.cos(jnp.array([0.0, 3.0])).round(3)",
    "Array([ 1.  , -0.99], dtype=float32)")
cosh = _inexact("cosh", cosh_p, "The hyperbolic cosine of x, elementwise; integers give floats.")
exp = _inexact(
    "exp", exp_p,
    "e to the power of x, elementwise; integers give floats.",
    "jnp.exp(jnp.array([0, 1])).round(3)",
    "Array([1.   , 2.718], dtype=float32)")
exp2 = _inexact("exp2", exp2_p, "2 to the power of x, elementwise; integers give floats.")
expm1 = _inexact(
    "expm1", expm1_p,
    "exp(x) - 1, elementwise, accurate also where x is near 0.",
    "jnp.expm1(jnp.array([0.0, 1e-10]))",
    "Array([0.e+00, 1.e-10], dtype=float32)")
log = _inexact(
    "log", log_p,
    "The natural logarithm of x, elementwise; -inf at 0, NaN below.",
    "jnp.log(jnp.array([1.0, 0.0, -1.0]))",
    "Array([  0., -inf,  nan], dtype=float32)")
log1p = _inexact(
    "log1p", log1p_p,
    "log(1 + x), elementwise, accurate also where x is near 0.",
    "jnp.log1p(jnp.array([0.0, 1e-10]))",
    "Array([0.e+00, 1.e-10], dtype=float32)")
sin = _inexact(
    "sin", sin_p,
    "The sine of x, in radians, elementwise; integers give floats.",
    "jnp.sin(jnp.array([0, 1])).round(3)",
    "Array([0.   , 0.841], dtype=float32)")
sinh = _inexact("sinh", sinh_p, "The hyperbolic sine of x, elementwise; integers give floats.")
sqrt = _inexact(
    "sqrt", sqrt_p,
    "The square root of x, elementwise; NaN where a real x is negative.",
    "jnp.sqrt(jnp.array([4, 2]))",
    "Array([2.       , 1.4142135], dtype=float32)")
tan = _inexact(
    "tan", tan_p,
    "The tangent of x, in radians, elementwise; integers give floats.",
    "jnp.tan(jnp.array([0, 1])).round(3)",
    "Array([0.   , 1.557], dtype=float32)")
tanh = _inexact(
    "tanh", tanh_p,
    "The hyperbolic tangent of x, elementwise: between -1 and 1.",
    "jnp.tanh(jnp.array([-20.0, 0.0, 1.0])).round(3)",
    "Array([-1.   ,  0.   ,  0.762], dtype=float32)")
negative_function = _same(
    "negative", neg_p,
    "-x, elementwise; also written `-x`. Raises TypeError for bool.",
    "jnp.negative(jnp.array([1, -2]))",
    "Array([-1,  2], dtype=int32)")
sign = _same(
    "sign", sign_p,
    "-1, 0 or 1 by the sign of x, elementwise; x / abs(x) for complex x.",
    "jnp.sign(jnp.array([-2.5, 0.0, 3.0]))",
    "Array([-1.,  0.,  1.], dtype=float32)")


@sharding_notes.elementwise
def acosh(x, /):
    """Inverse hyperbolic cosine; of complex x the branch with a real part that is not negative."""
    (x,) = promote_args_inexact("acosh", x)
    result = acosh_p.bind(x)
    if LEVEL[dtype_name(result)] == 3:
        negative = lt_p.bind(real_p.bind(result), _zero(real_dtype(dtype_name(result))))
        result = select_n_p.bind(negative, result, neg_p.bind(result))
    return result


@sharding_notes.elementwise
def arccosh(x, /):
    """Inverse hyperbolic cosine; of complex x the branch with a real part that is not negative."""
    return acosh(x)


def real_dtype(dtype: Any) -> np.dtype:
    """The dtype of the parts of a complex dtype; others as they are."""
    return {np.dtype("complex64"): np.dtype("float32"),
            np.dtype("complex128"): np.dtype("float64")}.get(dtype, dtype)


def _zero(dtype: Any) -> Any:
    return convert(0, dtype)


@sharding_notes.elementwise
def abs(x, /):
    """The absolute value of x, elementwise; of complex x a float. Also written `abs(x)`.

    >>> jnp.abs(jnp.array([-3, 2])), jnp.abs(jnp.array([3 + 4j]))
    (Array([3, 2], dtype=int32), Array([5.], dtype=float32))
    """
    return absolute(x)


@sharding_notes.elementwise
def absolute(x, /):
    """Another name of `abs`: the absolute value of x, elementwise; of complex x a float."""
    check_arraylike("absolute", x)
    dtype = dtype_name(x)
    if dtype == BOOL or issubdtype(dtype, np.unsignedinteger):
        return as_array(x)
    return abs_p.bind(x)


@sharding_notes.elementwise
def fabs(x, /):
    """The absolute value of x as a float, elementwise; raises TypeError for complex x."""
    check_arraylike("fabs", x)
    if LEVEL[dtype_name(x)] == 3:
        raise TypeError("ufunc 'fabs' does not support complex dtypes")
    return abs_p.bind(*promote_args_inexact("fabs", x))


@sharding_notes.elementwise
def positive(x, /):
    """x itself, elementwise: what `+x` means. Raises TypeError for values that are not numbers."""
    (x,) = promote_args("positive", x)
    return as_array(x)


@sharding_notes.elementwise
def square(x, /):
    """x times x, elementwise, in the dtype of x.

    >>> jnp.square(jnp.array([-3, 2]))
    Array([9, 4], dtype=int32)
    """
    (x,) = promote_dtypes_numeric(*promote_args("square", x))
    return square_p.bind(x)


def _scaled(name: str, factor: float, doc: str, *example: str) -> Callable[..., Any]:
    def f(x, /):
        (x,) = promote_args_inexact(name, x)
        strong = convert(factor, np.dtype(dtype_name(x)))
        return mul_p.bind(x, strong if shape_of(x) else literal_like(factor, x))

    return named(f, name, doc, *example)


degrees, rad2deg = aliases(
    _scaled, "degrees", "rad2deg", 180 / np.pi,
    "Angles in radians, converted to degrees: x times 180 / pi.")
deg2rad, radians = aliases(
    _scaled, "deg2rad", "radians", np.pi / 180,
    "Angles in degrees, converted to radians: x times pi / 180.")


@sharding_notes.elementwise
def sinc(x, /):
    """sin(pi x) / (pi x), and 1 at 0, with derivatives that are right there too."""
    (x,) = promote_args_inexact("sinc", narrowed(x))
    at_zero = eq_p.bind(x, literal_like(0, x))
    pi_x = mul_p.bind(literal_like(np.pi, x), x)
    safe = select_of(at_zero, pi_x, literal_like(1, x))
    near = _sinc_near_zero(0, pi_x)
    return strong_array(select_n_p.bind(at_zero, div_p.bind(sin_p.bind(safe), safe), near))


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
    """The modified Bessel function of the first kind of order 0, elementwise, of real x."""
    (x,) = promote_args_inexact("i0", x)
    if not issubdtype(dtype_name(x), np.floating):
        raise ValueError(f"Unsupported input type to jax.numpy.i0: {dtype_name(x)}")
    return _i0(x)


@custom_jvp
def _i0(x: Any) -> Any:
    x = abs_p.bind(x)
    return mul_p.bind(exp_p.bind(x), bessel_i0e_p.bind(x))


@_i0.defjvp
def _i0_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Even functions are level at 0, where `abs` is not."""
    (x,), (t,) = primals, tangents
    size = abs_p.bind(x)
    slope = mul_p.bind(mul_p.bind(exp_p.bind(size), bessel_i1e_p.bind(size)), sign_p.bind(x))
    return _i0(x), mul_p.bind(t, slope)



