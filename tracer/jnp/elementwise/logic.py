"""Comparisons and truth: equal, less, logical_and, isclose, isnan and their like."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.op import Op
from ....ir.ops.elementwise.arithmetic import abs_p, add_p, mul_p, sub_p
from ....ir.ops.elementwise.bitwise import and_p, not_p, or_p, xor_p
from ....ir.ops.elementwise.comparison import eq_p, ge_p, gt_p, is_finite_p, le_p, lt_p, ne_p
from ....ir.ops.elementwise.complex_parts import imag_p, real_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    literal_like,
    promote_args,
    promote_args_inexact,
    promote_pair,
    strong,
    strong_array,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import BOOL, LEVEL
from ...staging.constants import as_array
from ...staging.memoized import memoized
from ..reductions.reduce import all as all_of
from .arithmetic import absolute, named
from .two_operands import binary

__all__ = [
    "allclose", "array_equal", "array_equiv", "equal", "greater", "greater_equal", "isclose",
    "iscomplexobj", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "isrealobj", "isscalar",
    "iterable", "less", "less_equal", "logical_not", "not_equal",
]

# -- comparisons -----------------------------------------------------------------------------------


def _order(name: str, op: Op, doc: str, *example: str) -> Callable[..., Any]:
    """An order comparison; complex numbers by real part, then by imaginary part."""
    bind = op.bind

    def f(x, y, /):
        x, y = promote_pair(name, x, y)
        if LEVEL.get(dtype_name(x)) == 3:
            same = eq_p.bind(real_p.bind(x), real_p.bind(y))
            by_imag = bind(imag_p.bind(x), imag_p.bind(y))
            return select_n_p.bind(same, bind(real_p.bind(x), real_p.bind(y)), by_imag)
        return bind(x, y)

    return named(f, name, doc, *example)


equal = binary(
    "equal", eq_p,
    "Whether x == y, elementwise: an array of bool.",
    "jnp.equal(jnp.array([1, 2]), 2)",
    "Array([False,  True], dtype=bool)")
not_equal = binary(
    "not_equal", ne_p,
    "Whether x != y, elementwise: an array of bool.",
    "jnp.not_equal(jnp.array([1, 2]), 2)",
    "Array([ True, False], dtype=bool)")
greater = _order(
    "greater", gt_p,
    "Whether x > y, elementwise; complex numbers by real part, then imaginary part.",
    "jnp.greater(jnp.array([1, 3]), 2)",
    "Array([False,  True], dtype=bool)")
greater_equal = _order(
    "greater_equal", ge_p,
    "Whether x >= y, elementwise; complex numbers by real part, then imaginary part.",
    "jnp.greater_equal(jnp.array([1, 3]), 2)",
    "Array([False,  True], dtype=bool)")
less = _order(
    "less", lt_p,
    "Whether x < y, elementwise; complex numbers by real part, then imaginary part.",
    "jnp.less(jnp.array([1, 3]), 2)",
    "Array([ True, False], dtype=bool)")
less_equal = _order(
    "less_equal", le_p,
    "Whether x <= y, elementwise; complex numbers by real part, then imaginary part.",
    "jnp.less_equal(jnp.array([1, 3]), 2)",
    "Array([ True, False], dtype=bool)")


# -- truth -----------------------------------------------------------------------------------------

def truth(x: Any) -> Any:
    """x as bool: whether different from zero."""
    if dtype_name(x) == BOOL:
        return x
    return strong_array(ne_p.bind(x, literal_like(0, x)))


def _logical(name: str, op: Op, doc: str, *example: str) -> Callable[..., Any]:
    def f(x, y, /):
        x, y = promote_args(name, x, y)
        return op.bind(truth(x), truth(y))

    return named(f, name, doc, *example)


logical_and_function = _logical(
    "logical_and", and_p,
    "Whether both x and y are true (not zero), elementwise.",
    "jnp.logical_and(jnp.array([0, 3]), jnp.array([1, 4]))",
    "Array([False,  True], dtype=bool)")
logical_or_function = _logical(
    "logical_or", or_p,
    "Whether x or y is true (not zero), elementwise.",
    "jnp.logical_or(jnp.array([0, 3]), jnp.array([0, 4]))",
    "Array([False,  True], dtype=bool)")
logical_xor_function = _logical(
    "logical_xor", xor_p,
    "Whether exactly one of x and y is true (not zero), elementwise.")


@sharding_notes.elementwise
def logical_not(x, /):
    """Whether x is false (zero), elementwise: an array of bool.

    >>> jnp.logical_not(jnp.array([0, 3]))
    Array([ True, False], dtype=bool)
    """
    (x,) = promote_args("logical_not", x)
    return not_p.bind(truth(x))


@sharding_notes.elementwise
def isfinite(x, /):
    """Whether x is neither infinite nor NaN, elementwise: an array of bool.

    >>> jnp.isfinite(jnp.array([1.0, jnp.inf, jnp.nan]))
    Array([ True, False, False], dtype=bool)
    """
    check_arraylike("isfinite", x)
    level = LEVEL[dtype_name(x)]
    if level == 2:
        return is_finite_p.bind(x)
    if level == 3:
        return and_p.bind(is_finite_p.bind(real_p.bind(x)), is_finite_p.bind(imag_p.bind(x)))
    return lax.full_like(x, True, np.dtype(bool))


@sharding_notes.elementwise
def isinf(x, /):
    """Whether x is infinite, of either sign, elementwise: an array of bool.

    >>> jnp.isinf(jnp.array([1.0, -jnp.inf, jnp.nan]))
    Array([False,  True, False], dtype=bool)
    """
    check_arraylike("isinf", x)
    level = LEVEL[dtype_name(x)]
    if level == 2:
        return strong(eq_p.bind(abs_p.bind(x), literal_like(np.inf, x)))
    if level == 3:
        parts = real_p.bind(x), imag_p.bind(x)
        return strong(or_p.bind(*(eq_p.bind(abs_p.bind(v), literal_like(np.inf, v))
                                  for v in parts)))
    return lax.full_like(x, False, np.dtype(bool))


@sharding_notes.elementwise
def isnan(x, /):
    """Whether x is NaN, not a number, elementwise: an array of bool.

    >>> jnp.isnan(jnp.array([1.0, jnp.inf, jnp.nan]))
    Array([False, False,  True], dtype=bool)
    """
    check_arraylike("isnan", x)
    return ne_p.bind(x, x)


def _is_infinity(x: Any, value: float, out: Any) -> Any:
    """Is it the infinity `value`? Integers are none."""
    check_arraylike("isposinf/isneginf", x)
    if out is not None:
        raise NotImplementedError("The 'out' argument to isneginf/isposinf is not supported.")
    level = LEVEL[dtype_name(x)]
    if level == 2:
        return strong(eq_p.bind(x, literal_like(value, x)))
    if level == 3:
        raise ValueError("isposinf/isneginf are not well defined for complex types")
    return lax.full_like(x, False, np.dtype(bool))


@sharding_notes.elementwise
def isposinf(x, /, out=None):
    """Whether x is positive infinity, elementwise: an array of bool. `x` must be real."""
    return _is_infinity(x, np.inf, out)


@sharding_notes.elementwise
def isneginf(x, /, out=None):
    """Whether x is negative infinity, elementwise: an array of bool. `x` must be real."""
    return _is_infinity(x, -np.inf, out)


@sharding_notes.elementwise
@memoized
def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether `|a - b| <= atol + rtol * |b|`, elementwise: an array of bool.

    Infinities of one sign are close to each other; NaN are if `equal_nan`.

    >>> jnp.isclose(jnp.array([1.0, 2.0]), jnp.array([1.0, 2.1]))
    Array([ True, False], dtype=bool)
    """
    a, b = promote_args("isclose", a, b)
    if LEVEL[dtype_name(a)] < 2:
        a, b = promote_args_inexact("isclose", a, b)
    dtype = np.zeros(0, dtype_name(a)).real.dtype
    rtol = rtol if isinstance(rtol, Array) else convert(rtol, dtype)
    atol = atol if isinstance(atol, Array) else convert(atol, dtype)
    finite, distance = isfinite(b), absolute(sub_p.bind(a, b))
    bound = add_p.bind(*promote_pair("isclose", atol, mul_p.bind(
        *promote_pair("isclose", rtol, absolute(b)))))
    near = less_equal(distance, bound)
    same = eq_p.bind(a, b)
    out = or_p.bind(same, and_p.bind(finite, near))
    if equal_nan is False:
        return out
    both_nan = and_p.bind(ne_p.bind(a, a), ne_p.bind(b, b))
    if equal_nan is True:
        return or_p.bind(out, both_nan)
    return or_p.bind(out, and_p.bind(both_nan, as_array(equal_nan)))


@sharding_notes.reduction
def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements of two arrays are close to each other, as `isclose` says: one bool.

    >>> jnp.allclose(jnp.array([1.0, 2.0]), jnp.array([1.0, 2.0 + 1e-7]))
    Array(True, dtype=bool)
    """
    return all_of(isclose(a, b, rtol, atol, equal_nan))


@sharding_notes.reduction
def array_equal(a1, a2, equal_nan=False):
    """Whether two arrays have the same shape and the same elements; one bool, False for no arrays.

    equal_nan: whether NaN equal each other.

    >>> jnp.array_equal(jnp.array([1, 2]), jnp.array([1, 2]))
    Array(True, dtype=bool)
    """
    try:
        a1, a2 = as_array(np_or_array(a1)), as_array(np_or_array(a2))
    except (TypeError, ValueError):
        return as_array(np.bool_(False))
    if shape_of(a1) != shape_of(a2):
        return as_array(np.bool_(False))
    same = equal(a1, a2)
    if equal_nan:
        same = logical_or_function(same, logical_and_function(isnan(a1), isnan(a2)))
    return all_of(same)


def array_equiv(a1, a2):
    """Whether two arrays broadcast to one shape and have the same elements there; one bool."""
    try:
        a1, a2 = as_array(np_or_array(a1)), as_array(np_or_array(a2))
    except (TypeError, ValueError):
        return as_array(np.bool_(False))
    try:
        same = equal(a1, a2)
    except (TypeError, ValueError):
        return as_array(np.bool_(False))
    return all_of(same)


def np_or_array(x: Any) -> Any:
    """Lists as numpy arrays; arrays and scalars unchanged."""
    return np.asarray(x) if isinstance(x, (list, tuple)) else x


def isscalar(element):
    """Whether element is a scalar: a Python or numpy number, or an array of rank 0."""
    if np.isscalar(element):
        return True
    if hasattr(element, "__jax_array__"):
        element = as_array(element)
    return isinstance(element, (Array, np.ndarray)) and element.ndim == 0


def iscomplexobj(x):
    """Whether the dtype of x is a complex one, whatever its values: one Python bool."""
    if x is None:
        return False
    if isinstance(x, (list, tuple)):
        return any(map(iscomplexobj, x))
    return LEVEL.get(dtype_name(np_or_array(x))) == 3


def isrealobj(x):
    """Whether the dtype of x is not a complex one, whatever its values: one Python bool."""
    return not iscomplexobj(x)


def iterable(y):
    """Whether y can be iterated over, as sequences and arrays with a dimension can."""
    if isinstance(y, Array):
        return y.ndim > 0
    return np.iterable(y)


