"""Powers and logarithms to several bases, and sums of numbers given by their logarithms."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.op import Op
from ....ir.ops.elementwise.arithmetic import (
    abs_p,
    add_p,
    div_p,
    max_p,
    min_p,
    mul_p,
    neg_p,
    rem_p,
    sub_p,
)
from ....ir.ops.elementwise.bitwise import and_p, or_p, shift_right_logical_p
from ....ir.ops.elementwise.comparison import eq_p, lt_p, ne_p
from ....ir.ops.elementwise.complex_parts import complex_p, imag_p, real_p
from ....ir.ops.elementwise.powers import integer_pow_p, pow_p, sqrt_p, square_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.ops.elementwise.transcendental import exp2_p, exp_p, log1p_p, log_p, logistic_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...autodiff.custom.custom_jvp import custom_jvp
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    literal_like,
    promote_args,
    promote_args_inexact,
    promote_args_numeric,
    result_dtype,
    strong_array,
)
from ...operands.rank_promotion import promote_shapes
from ...operands.scalars import BOOL, LEVEL, int_default
from ...staging.memoized import memoized
from .arithmetic import real_dtype

__all__ = ["float_power", "hypot", "log2", "log10", "pow", "power", "reciprocal"]
_NUMBERS = (int, float)


@sharding_notes.elementwise
def reciprocal(x, /):
    """1 / x, elementwise; integers become floats first. At 0 it is infinite."""
    return integer_pow_p.bind(*promote_args_inexact("reciprocal", x), y=-1)


@sharding_notes.elementwise
def log2(x, /):
    """The logarithm of x to base 2, elementwise; -inf at 0, NaN below.

    >>> jnp.log2(jnp.array([1, 8]))
    Array([0., 3.], dtype=float32)
    """
    (x,) = promote_args_inexact("log2", x)
    if LEVEL[dtype_name(x)] == 3:
        value = log_p.bind(x)
        two = log_p.bind(real_dtype(dtype_name(x)).type(2))
        real, imag = real_p.bind(value), imag_p.bind(value)
        return complex_p.bind(div_p.bind(real, two), div_p.bind(imag, two))
    return div_p.bind(log_p.bind(x), log_p.bind(np.dtype(dtype_name(x)).type(2)))


@sharding_notes.elementwise
def log10(x, /):
    """The logarithm of x to base 10, elementwise; -inf at 0, NaN below.

    >>> jnp.log10(jnp.array([1, 1000])).round(3)
    Array([0., 3.], dtype=float32)
    """
    (x,) = promote_args_inexact("log10", x)
    factor = 1 / np.log(10)
    value = log_p.bind(x)
    if LEVEL[dtype_name(x)] == 3:
        part = real_dtype(dtype_name(x)).type(factor)
        real, imag = real_p.bind(value), imag_p.bind(value)
        return complex_p.bind(mul_p.bind(real, part), mul_p.bind(imag, part))
    return mul_p.bind(value, np.dtype(dtype_name(x)).type(factor))


@sharding_notes.elementwise
def power(x1, x2, /):
    """x1 to the power of x2, elementwise; also written `x1 ** x2`.

    An integer x2 known while tracing becomes repeated multiplication. Integers to the power of
    integers stay integers: a negative x2 is a TypeError if it is known, else without meaning.

    >>> jnp.power(jnp.array([1, 2, 3]), 2)
    Array([1, 4, 9], dtype=int32)
    """
    if type(x2) is int and isinstance(x1, Array) and x1.aval.dtype != BOOL:
        return integer_pow_p.bind(x1, y=x2)
    return _power(x1, x2)


@memoized
def _power(x1: Any, x2: Any) -> Any:
    """`power` by the op that suits the dtypes: a static integer exponent, floats to integers,
    integers by repeated squaring, or floats.
    """
    check_arraylike("power", x1, x2)
    exponent = x2 if type(x2) is int else _static_integer(x2)
    if exponent is not None:
        (x1,) = promote_args("power", x1)
        if dtype_name(x1) == BOOL:
            x1 = convert(x1, int_default())
        return integer_pow_p.bind(x1, y=exponent)
    own1, own2 = dtype_name(x1), dtype_name(x2)
    result_dtype(x1, x2)                  # raises where strict promotion forbids the two
    if LEVEL[own1] >= 2 and LEVEL[own2] == 1 and isinstance(x2, Array):
        x1, x2 = promote_shapes("power", x1, x2)
        return pow_p.bind(x1, x2)
    x1, x2 = promote_args_numeric("power", x1, x2)
    if LEVEL[dtype_name(x1)] < 2:       # not those of int64 and uint64, which have only floats
        return _integer_power(x1, x2)
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
    zero, one = convert(0, dtype), convert(1, dtype)
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


@sharding_notes.elementwise
def pow(x1, x2, /):
    """Another name of `power`: x1 to the power of x2, elementwise; also written `x1 ** x2`."""
    return power(x1, x2)


@sharding_notes.elementwise
def float_power(x, y, /):
    """x to the power of y, elementwise, both converted to floats first; NaN where that is not real.
    """
    return pow_p.bind(*promote_args_inexact("float_power", x, y))


@sharding_notes.elementwise
@memoized
def logaddexp_function(x1, x2, /):
    """log(exp(x1) + exp(x2)), elementwise, without overflow.

    >>> jnp.logaddexp(1000.0, 1000.0).round(1)
    Array(1000.7, dtype=float32, weak_type=True)
    """
    a, b = promote_args_inexact("logaddexp", x1, x2)
    if LEVEL[dtype_name(a)] != 3:
        if type(x2) in _NUMBERS and x2 == 0:
            return _log_of_one_more(a)
        if type(x1) in _NUMBERS and x1 == 0:
            return _log_of_one_more(b)
    return _logaddexp(a, b)


@sharding_notes.elementwise
@memoized
def logaddexp2_function(x1, x2, /):
    """log2(2 ** x1 + 2 ** x2), elementwise, without overflow: as `logaddexp`, to base 2.

    >>> jnp.logaddexp2(3.0, 3.0)
    Array(4., dtype=float32, weak_type=True)
    """
    return strong_array(_logaddexp2(*promote_args_inexact("logaddexp2", x1, x2)))


@custom_jvp
def _logaddexp(x1: Any, x2: Any) -> Any:
    """`logaddexp_function` of promoted operands."""
    return _add_logs(x1, x2, exp_p, None)


@custom_jvp
def _logaddexp2(x1: Any, x2: Any) -> Any:
    """`logaddexp2_function` of promoted operands."""
    return _add_logs(x1, x2, exp2_p, 1 / np.log(2))


@custom_jvp
def _log_of_one_more(x: Any) -> Any:
    """log(exp(x) + 1): `_logaddexp` of x and 0, whose share of the sum needs no logarithm."""
    return _add_logs(x, literal_like(0, x), exp_p, None)


@_log_of_one_more.defjvp
def _log_of_one_more_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    return _log_of_one_more(x), mul_p.bind(t, logistic_p.bind(x))


def _shares(f: Any, power_op: Op) -> Any:
    """The rule: each tangent times the share of its operand in the sum; that of inf is 1."""
    def finite(x: Any) -> Any:
        return select_of(eq_p.bind(x, literal_like(np.inf, x)), x, literal_like(0, x))

    def rule(primals: Any, tangents: Any) -> tuple[Any, Any]:
        out = f(*primals)
        a, b = (mul_p.bind(t, power_op.bind(sub_p.bind(finite(x), finite(out))))
                for x, t in zip(primals, tangents, strict=True))
        return out, add_p.bind(a, b)

    return rule


_logaddexp.defjvp(_shares(_logaddexp, exp_p))
_logaddexp2.defjvp(_shares(_logaddexp2, exp2_p))


def _add_logs(x1: Any, x2: Any, power_op: Op, scale: float | None) -> Any:
    """The logarithm of a sum, from the logarithms x1 and x2 of its terms, without overflow: the
    larger plus log1p of the ratio. scale: of a logarithm to another base, whose power is
    `power_op`.
    """
    top = max_p.bind(x1, x2)

    def log1p_scaled(v: Any) -> Any:
        v = log1p_p.bind(power_op.bind(v))
        return v if scale is None else mul_p.bind(literal_like(scale, top), v)

    if LEVEL[dtype_name(top)] == 3:
        total = sub_p.bind(add_p.bind(x1, x2), mul_p.bind(top, literal_like(2, top)))
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
    a, two_a, zero = convert(half, dtype), convert(2 * half, dtype), convert(0, dtype)
    rem = rem_p.bind(add_p.bind(x, a), two_a)
    rem = select_n_p.bind(lt_p.bind(rem, zero), rem, add_p.bind(rem, two_a))
    return sub_p.bind(rem, a)


@sharding_notes.elementwise
def hypot(x1, x2, /):
    """sqrt(x1 ** 2 + x2 ** 2), elementwise, without overflow where the squares would have it."""
    x1, x2 = promote_args_inexact("hypot", x1, x2)
    if LEVEL[dtype_name(x1)] == 3:
        raise ValueError("jnp.hypot is not well defined for complex-valued inputs. Please convert "
                         "to real values first, such as by using abs(x)")
    x1, x2 = abs_p.bind(x1), abs_p.bind(x2)
    inf = literal_like(np.inf, x1)
    infinite = or_p.bind(eq_p.bind(x1, inf), eq_p.bind(x2, inf))
    high, low = max_p.bind(x1, x2), min_p.bind(x1, x2)
    zero, one = literal_like(0, high), literal_like(1, high)
    is_zero = eq_p.bind(high, zero)
    ratio = div_p.bind(low, select_of(eq_p.bind(high, zero), high, one))
    length = mul_p.bind(high, sqrt_p.bind(add_p.bind(one, square_p.bind(ratio))))
    return strong_array(select_of(infinite, select_n_p.bind(is_zero, length, high), inf))
