"""Rounding: floor, ceil, trunc, round; integers stay as they are."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.op import Op
from ....ir.ops.elementwise.arithmetic import ceil_p, div_p, floor_p, mul_p, round_p
from ....ir.ops.elementwise.comparison import lt_p
from ....ir.ops.elementwise.complex_parts import complex_p, imag_p, real_p
from ....ir.ops.elementwise.select import select_n_p
from ... import lax, sharding_notes
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    literal_like,
    promote_args_inexact,
    to_inexact,
)
from ...operands.scalars import LEVEL
from ...staging.constants import as_array
from .arithmetic import named

__all__ = ["around", "ceil", "floor", "rint", "round", "trunc"]


def _rounding(name: str, op: Op, doc: str, *example: str) -> Callable[..., Any]:
    def f(x, /):
        check_arraylike(name, x)
        if LEVEL[dtype_name(x)] < 2:
            return as_array(x)
        return op.bind(*promote_args_inexact(name, x))

    return named(f, name, doc, *example)


ceil = _rounding(
    "ceil", ceil_p,
    "The least integer not below x, elementwise, in the dtype of x.",
    "jnp.ceil(jnp.array([-1.5, 1.5]))",
    "Array([-1.,  2.], dtype=float32)")


floor = _rounding(
    "floor", floor_p,
    "The greatest integer not above x, elementwise, in the dtype of x.",
    "jnp.floor(jnp.array([-1.5, 1.5]))",
    "Array([-2.,  1.], dtype=float32)")


@sharding_notes.elementwise
def trunc(x):
    """x rounded to an integer towards zero, elementwise, in the dtype of x."""
    check_arraylike("trunc", x)
    dtype = dtype_name(x)
    if LEVEL[dtype] < 2:
        return as_array(x)
    negative, up = lt_p.bind(x, literal_like(0, x)), ceil_p.bind(x)
    return select_n_p.bind(negative, floor_p.bind(x), up)


@sharding_notes.elementwise
def round(a, decimals=0, out=None):
    """`a` rounded to a number of decimals, elementwise; halves go to the even neighbour.

    decimals: digits after the decimal point; negative ones are before it.

    >>> jnp.round(jnp.array([1.25, 2.5, -0.5]))
    Array([ 1.,  2., -0.], dtype=float32)
    """
    check_arraylike("round", a)
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.round is not supported.")
    decimals = operator.index(decimals)
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
    """Round to `decimals` places; 16-bit floats in float32."""
    if decimals == 0:
        return round_p.bind(x, rounding_method=lax.RoundingMethod.TO_NEAREST_EVEN)
    dtype = dtype_name(x)
    factor = convert(10.0 ** decimals, dtype) if np.ndim(x) else literal_like(10.0 ** decimals, x)
    wide = dtype.itemsize < 4
    if wide:
        x = convert(x, np.dtype("float32"))
        factor = np.float32(10.0 ** decimals)
    scaled = round_p.bind(mul_p.bind(x, factor),
                          rounding_method=lax.RoundingMethod.TO_NEAREST_EVEN)
    out = div_p.bind(scaled, factor)
    return convert(out, dtype) if wide else out


@sharding_notes.elementwise
def around(a, decimals=0, out=None):
    """a rounded to `decimals` digits after the point, halves to even."""
    return round(a, decimals, out)


@sharding_notes.elementwise
def rint(x, /):
    """x rounded to the nearest integer, elementwise, halves to the even one; a float."""
    check_arraylike("rint", x)
    dtype = dtype_name(x)
    if LEVEL[dtype] < 2:
        return convert(as_array(x), to_inexact(dtype))
    return round(x)
