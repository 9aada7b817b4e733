"""Greatest common divisors and least common multiples."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.dtypes import issubdtype
from ....ir.ops.reductions.reduction import reduce_or_p
from ....ir.values.typeof import typeof
from ... import lax
from ...lax.control.bodies import vary
from ...operands.broadcasting import broadcast_together, select_of
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    literal_like,
    promote_dtypes,
)
from ...operands.rank_promotion import shape_of
from ...staging.constants import as_array
from .arithmetic import absolute

__all__ = ["gcd", "lcm"]


def _integers(name: str, x1: Any, x2: Any) -> tuple[Any, Any]:
    check_arraylike(name, x1, x2)
    x1, x2 = promote_dtypes(x1, x2)
    if not issubdtype(dtype_name(x1), np.integer):
        raise ValueError(f"Arguments to jax.numpy.{name} must be integers.")
    x1, x2 = broadcast_together(x1, x2)
    return absolute(x1), absolute(x2)


def gcd(x1, x2):
    """The greatest common divisor of integers, elementwise, by Euclid's algorithm."""
    return _euclid(*_integers("gcd", x1, x2))


def _euclid(a: Any, b: Any) -> Any:
    """Remainders of all elements at once, until the last one is finished."""
    dtype = dtype_name(a)
    zero = convert(0, dtype)
    axes = typeof(a).varying | typeof(b).varying
    dims = tuple(range(len(shape_of(a))))

    def unfinished(pair: tuple[Any, Any]) -> Any:
        return reduce_or_p.bind(lax.ne(pair[1], zero), axes=dims)

    def step(pair: tuple[Any, Any]) -> tuple[Any, Any]:
        a, b = pair
        more = lax.ne(b, zero)
        rest = lax.rem(a, select_of(more, convert(1, dtype), b))
        return select_of(more, a, b), select_of(more, zero, rest)

    start = vary(convert(as_array(a), dtype), axes), vary(convert(as_array(b), dtype), axes)
    weak = not dims and typeof(a).weak_type
    return convert(lax.while_loop(unfinished, step, start)[0], dtype, weak)


def lcm(x1, x2):
    """The least common multiple of the absolute values of integers, elementwise."""
    a, b = _integers("lcm", x1, x2)
    d = _euclid(a, b)
    none = lax.eq(d, literal_like(0, d))
    quotient = lax.div(b, select_of(none, d, literal_like(1, d)))
    return select_of(none, lax.mul(a, quotient), literal_like(0, d))
