"""Greatest common divisors and least common multiples."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.dtypes import issubdtype
from .. import lax
from ..broadcasting import broadcast_together, select_of
from ..constants import as_array
from ..dtype_promotion import check_arraylike, convert, dtype_name, promote_dtypes
from .elementwise import absolute


def _integers(name: str, x1: Any, x2: Any) -> tuple[Any, Any]:
    check_arraylike(name, x1, x2)
    x1, x2 = promote_dtypes(x1, x2)
    if not issubdtype(dtype_name(x1), np.integer):
        raise ValueError(f"Arguments to jax.numpy.{name} must be integers.")
    x1, x2 = broadcast_together(x1, x2)
    return absolute(x1), absolute(x2)


def gcd(x1, x2):
    """Greatest common divisor, by Euclid's algorithm."""
    a, b = _integers("gcd", x1, x2)
    return _euclid(a, b)


def _euclid(a: Any, b: Any) -> Any:
    """Each step takes a remainder; a number of n bits needs at most 1.45 n of them."""
    dtype = dtype_name(a)
    zero, one = dtype.type(0), dtype.type(1)
    for _ in range(int(np.ceil(1.4405 * dtype.itemsize * 8)) + 1):
        done = lax.eq(b, zero)
        rest = lax.rem(a, select_of(done, b, one))
        a, b = select_of(done, b, a), select_of(done, rest, zero)
    return as_array(a)


def lcm(x1, x2):
    """Least common multiple."""
    a, b = _integers("lcm", x1, x2)
    dtype = dtype_name(a)
    d = _euclid(a, b)
    none = lax.eq(d, dtype.type(0))
    quotient = lax.div(b, select_of(none, d, dtype.type(1)))
    return select_of(none, lax.mul(a, quotient), convert(0, dtype))
