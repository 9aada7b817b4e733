"""Elementwise arithmetic of jnp on two operands, which are brought to one dtype and rank."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.op import Op
from ....ir.ops.elementwise.arithmetic import (
    add_p,
    div_p,
    max_p,
    min_p,
    mul_p,
    nextafter_p,
    sub_p,
)
from ....ir.ops.elementwise.bitwise import and_p, or_p
from ....ir.ops.elementwise.comparison import gt_p, lt_p, ne_p
from ....ir.ops.elementwise.transcendental import atan2_p
from ....ir.values.array import Array
from ... import sharding_notes
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import (
    check_arraylike,
    literal_like,
    promote_args_inexact,
    promote_pair,
    promote_pair_inexact,
    strong_array,
)
from ...operands.scalars import BOOL
from ...staging.tracer import Tracer
from .arithmetic import aliases, named

__all__ = ["arctan2", "atan2", "divide", "heaviside", "nextafter", "true_divide"]


def binary(name: str, op: Op, doc: str, *example: str, bool_op: Op | None = None
            ) -> Callable[..., Any]:
    """A function of two operands of one dtype; bool_op takes its place for bool."""
    bind = op.bind
    bool_bind = None if bool_op is None else bool_op.bind

    def f(x, y, /):
        if type(x) is not Tracer or type(y) is not Tracer or x.aval is not y.aval:
            x, y = promote_pair(name, x, y)
        if bool_bind is not None and (x.aval.dtype if type(x) is Tracer or isinstance(x, Array)
                                      else getattr(x, "dtype", None)) is BOOL:
            return bool_bind(x, y)
        return bind(x, y)

    return named(f, name, doc, *example)


def _binary_inexact(name: str, op: Op, doc: str, *example: str) -> Callable[..., Any]:
    bind = op.bind

    def f(x1, x2, /):
        x1, x2 = promote_pair_inexact(name, x1, x2)
        return bind(x1, x2)

    return named(f, name, doc, *example)


add_function = binary(
    "add", add_p,
    "x + y, elementwise, broadcast to one shape; bool operands give `or`.",
    "jnp.add(jnp.array([1, 2]), 0.5)",
    "Array([1.5, 2.5], dtype=float32, weak_type=True)", bool_op=or_p)
subtract_function = binary(
    "subtract", sub_p,
    "x - y, elementwise, broadcast to one shape. Raises TypeError for bool.",
    "jnp.subtract(jnp.array([1, 2]), 0.5)",
    "Array([0.5, 1.5], dtype=float32, weak_type=True)")
multiply_function = binary(
    "multiply", mul_p,
    "x * y, elementwise, broadcast to one shape; bool operands give `and`.",
    "jnp.multiply(jnp.array([1, 2]), jnp.array([[3], [4]]))",
    "Array([[3, 6],",
    "       [4, 8]], dtype=int32)", bool_op=and_p)
maximum_function = binary(
    "maximum", max_p,
    "The greater of x and y, elementwise; NaN where one of them is.",
    "jnp.maximum(jnp.array([1.0, -2.0]), 0)",
    "Array([1., 0.], dtype=float32)")
minimum_function = binary(
    "minimum", min_p,
    "The lesser of x and y, elementwise; NaN where one of them is.",
    "jnp.minimum(jnp.array([1.0, -2.0]), 0)",
    "Array([ 0., -2.], dtype=float32)")
divide, true_divide = aliases(
    _binary_inexact, "divide", "true_divide", div_p,
    "x1 / x2, elementwise; the quotient of integers is a float.",
    "jnp.divide(jnp.array([1, 2]), 4)",
    "Array([0.25, 0.5 ], dtype=float32)")
arctan2, atan2 = aliases(
    _binary_inexact, "arctan2", "atan2", atan2_p,
    "The angle of the point (x2, x1), elementwise: in (-pi, pi], by the signs of both.")


@sharding_notes.elementwise
def nextafter(x, y, /):
    """The next number after x in the direction of y, elementwise, in their float dtype."""
    x, y = promote_pair_inexact("nextafter", x, y)
    return nextafter_p.bind(x, y)


@sharding_notes.equal
def heaviside(x1, x2, /):
    """The step function, elementwise: 0 where x1 is negative, 1 where positive, x2 where zero."""
    check_arraylike("heaviside", x1, x2)
    x1, x2 = promote_args_inexact("heaviside", x1, x2)
    zero, one = literal_like(0, x1), literal_like(1, x1)
    negative, greater = lt_p.bind(x1, zero), gt_p.bind(x1, zero)
    at_zero = select_of(ne_p.bind(x1, x1), x2, x1)
    return strong_array(select_of(negative, select_of(greater, at_zero, one), zero))
