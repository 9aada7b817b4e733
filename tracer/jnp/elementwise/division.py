"""Integer division and remainders, with the sign of the divisor or of the dividend."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.dtypes import issubdtype
from ....ir.ops.elementwise.arithmetic import add_p, div_p, rem_p, round_p, sign_p, sub_p
from ....ir.ops.elementwise.bitwise import and_p
from ....ir.ops.elementwise.comparison import eq_p, lt_p, ne_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import (
    check_arraylike,
    dtype_name,
    literal_like,
    promote_args_numeric,
)
from ...operands.scalars import LEVEL
from ...staging.memoized import memoized

__all__ = ["divmod", "floor_divide", "fmod", "mod", "remainder"]


@sharding_notes.equal
@memoized
def floor_divide(x1, x2, /):
    """x1 / x2 rounded down to an integer, elementwise; also written `x1 // x2`.

    Integers give integers, others floats. Raises TypeError for complex numbers.

    >>> jnp.floor_divide(jnp.array([7, -7]), 2)
    Array([ 3, -4], dtype=int32)
    """
    x1, x2 = promote_args_numeric("floor_divide", x1, x2)
    dtype = dtype_name(x1)
    if issubdtype(dtype, np.unsignedinteger):
        return div_p.bind(x1, x2)
    if issubdtype(dtype, np.integer):
        quotient = div_p.bind(x1, x2)
        differ = ne_p.bind(sign_p.bind(x1), sign_p.bind(x2))
        inexact = ne_p.bind(rem_p.bind(x1, x2), literal_like(0, quotient))
        below = and_p.bind(differ, inexact)
        return select_n_p.bind(below, quotient, sub_p.bind(quotient, literal_like(1, quotient)))
    if LEVEL[dtype] == 3:
        raise TypeError("floor_divide does not support complex-valued inputs")
    return _float_divmod(x1, x2)[0]


def _float_divmod(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Quotient rounded down and remainder with the divisor's sign, as in numpy."""
    zero = literal_like(0, x1 if isinstance(x1, Array) else x2)
    one = literal_like(1, x1 if isinstance(x1, Array) else x2)
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
    """The quotient rounded down and the remainder, elementwise: `(x1 // x2, x1 % x2)`."""
    x1, x2 = promote_args_numeric("divmod", x1, x2)
    if issubdtype(dtype_name(x1), np.integer):
        return floor_divide(x1, x2), remainder(x1, x2)
    return _float_divmod(x1, x2)


@sharding_notes.elementwise
@memoized
def remainder(x1, x2, /):
    """What `x1 // x2` leaves of x1, elementwise, with the sign of x2; also written `x1 % x2`."""
    x1, x2 = promote_args_numeric("remainder", x1, x2)
    x2 = _nonzero_divisor(x1, x2)
    zero = literal_like(0, x1 if isinstance(x1, Array) else x2)
    mod = rem_p.bind(x1, x2)
    not_zero = ne_p.bind(mod, zero)
    differ = ne_p.bind(lt_p.bind(mod, zero), lt_p.bind(x2, zero))
    return select_n_p.bind(and_p.bind(differ, not_zero), mod, add_p.bind(mod, x2))


def _nonzero_divisor(x1: Any, x2: Any) -> Any:
    """Integer division by zero is left to the machine; dividing by 1 gives remainder 0."""
    if not issubdtype(dtype_name(x1), np.integer):
        return x2
    if not isinstance(x2, Array) and not np.ndim(x2):
        return x2 if x2 != 0 else literal_like(1, x1)
    return select_of(eq_p.bind(x2, literal_like(0, x2)), x2, literal_like(1, x2))


@sharding_notes.elementwise
def mod(x1, x2, /):
    """What `x1 // x2` leaves of x1, elementwise, with the sign of x2; also written `x1 % x2`.

    >>> jnp.mod(jnp.array([7, -7]), 3)
    Array([1, 2], dtype=int32)
    """
    return remainder(x1, x2)


@sharding_notes.elementwise
def fmod(x1, x2, /):
    """What x1 / x2 rounded towards zero leaves of x1, elementwise, with the sign of x1."""
    check_arraylike("fmod", x1, x2)
    x1, x2 = promote_args_numeric("fmod", x1, x2)
    return rem_p.bind(x1, _nonzero_divisor(x1, x2))
