"""Normalises arguments that name dimensions and shapes: checked, non-negative, as tuples."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import AxisError
from ...ir.values.array import Array
from ..staging.tracer import Tracer
from .rank_promotion import Shape


def static_int(n: Any) -> int:
    """An argument that is one integer. Raises ConcretizationTypeError where it is traced."""
    return n.concrete_index() if isinstance(n, Tracer) else operator.index(n)


def canonical_axis(axis: Any, ndim: int, name: str = "axis") -> int:
    """A dimension counted from the front. Raises AxisError if it does not exist."""
    if type(axis) is not int and not hasattr(axis, "__index__"):
        if isinstance(axis, str):
            raise NameError(f"Found an unbound axis name: {axis}. To fix this, please call psum "
                            "under `jax.shard_map`.")
        raise TypeError(f"an {name} is an integer or a sequence of integers, not {axis!r}")
    axis = static_int(axis)
    if not -ndim <= axis < ndim:
        raise AxisError(f"{name} {axis} is out of bounds for array of dimension {ndim}")
    return axis + ndim if axis < 0 else axis


def canonical_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """One axis, or several, counted from the front. Raises ValueError on duplicates."""
    if type(axes) is int and -ndim <= axes < ndim:
        return (axes + ndim if axes < 0 else axes,)
    if isinstance(axes, (tuple, list, np.ndarray)) and not (
            isinstance(axes, np.ndarray) and axes.ndim == 0):
        out = tuple([canonical_axis(a, ndim) for a in axes])
        if len(set(out)) != len(out):
            raise ValueError(f"duplicate value in 'axis': {tuple(axes)}")
        return out
    return (canonical_axis(axes, ndim),)


def as_sequence(shape: Any) -> Any:
    """A shape argument of `jax.numpy`: what is no sequence would be the one size in it."""
    return shape if isinstance(shape, (tuple, list)) or np.ndim(shape) else (shape,)


def integers(shape: Any, of: str = "") -> Shape:
    """A shape argument as ints, also negative ones; one int is a shape of rank 1.

    of: said of the argument in messages. Raises TypeError where a size is traced or no integer.
    """
    if hasattr(shape, "__index__") and not np.ndim(shape) or isinstance(shape, Array):
        shape = as_sequence(shape)
    sizes = []
    for n in shape:
        try:
            n = operator.index(n)
        except (AttributeError, TypeError) as error:
            message = ("Shapes must be 1D sequences of concrete values of integer type, got "
                       f"{shape}.{of}")
            if isinstance(n, Tracer):
                fail(TypeError, message, code="traced-shape", because=(
                    "the size is a traced value, known only when the program runs",), notes=(
                    "This concrete value was not available in Python because it depends on "
                    f"{n.builder.describe(n.variable)}",),
                     help="name the argument that it comes from in the `static_argnames` of `jit`")
            raise TypeError(message) from error
        sizes.append(n)
    return tuple(sizes)


def static_shape(shape: Any, op: str = "broadcast_in_dim") -> Shape:
    """The sizes that a shape argument gives what shall become this op, as `integers`.

    Raises TypeError where one is negative, too.
    """
    sizes = integers(shape)
    if sizes and min(sizes) < 0:
        raise TypeError(f"{op} shape must have every element be nonnegative, got {sizes}.")
    return sizes
