"""Clipping: clip, and nan_to_num, which replaces NaN and infinities."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.dtypes import finfo, iinfo, issubdtype
from ....ir.ops.elementwise.comparison import eq_p, ne_p
from ....ir.ops.elementwise.complex_parts import complex_p, imag_p, real_p
from ... import sharding_notes
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    literal_like,
    narrowed,
    promote_dtypes_inexact,
)
from ...operands.scalars import LEVEL
from ...staging.constants import as_array
from .two_operands import maximum_function, minimum_function

__all__ = ["clip", "nan_to_num"]


@sharding_notes.elementwise
def clip(arr=None, /, min=None, max=None):
    """The elements of `arr`, those below `min` raised to it, those above `max` lowered to it.

    min, max: scalars, arrays that broadcast, or None for no bound; where min > max the result is
    max. Raises ValueError for complex numbers, which have no order.

    >>> jnp.clip(jnp.array([-2.0, 0.5, 3.0]), -1.0, 1.0)
    Array([-1. ,  0.5,  1. ], dtype=float32)
    """
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


@sharding_notes.elementwise
def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """x with NaN replaced by a number, and infinities by the extreme finite values or those given.
    """
    check_arraylike("nan_to_num", x)
    if LEVEL[dtype_name(x)] < 2:
        return as_array(x)
    x = narrowed(x)
    dtype = dtype_name(x)
    if LEVEL[dtype] == 3:
        return complex_p.bind(nan_to_num(real_p.bind(x), copy, nan, posinf, neginf),
                              nan_to_num(imag_p.bind(x), copy, nan, posinf, neginf))
    low, high = extreme_values(dtype)
    posinf = high if posinf is None else posinf
    neginf = low if neginf is None else neginf
    (x,) = promote_dtypes_inexact(x)
    out = select_of(ne_p.bind(x, x), convert(x, dtype), convert(nan, dtype))
    out = select_of(eq_p.bind(out, literal_like(np.inf, out)), out, convert(posinf, dtype))
    return select_of(eq_p.bind(out, literal_like(-np.inf, out)), out, convert(neginf, dtype))
