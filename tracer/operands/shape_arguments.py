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


def canonical_axis(axis: Any, ndim: int, name: str = "axis") -> int:
    """A dimension counted from the front. Raises AxisError if it does not exist."""
    if type(axis) is not int and not hasattr(axis, "__index__"):
        if isinstance(axis, str):
            raise NameError(f"Found an unbound axis name: {axis}. To fix this, please call psum "
                            "under `jax.shard_map`.")
        raise TypeError(f"an {name} is an integer or a sequence of integers, not {axis!r}")
    axis = operator.index(axis)
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


def static_shape(shape: Any, op: str = "broadcast_in_dim") -> Shape:
    """A shape argument, of what shall become this op, as ints; one int is a shape of rank 1.

    Raises TypeError where a size is traced, no integer, or negative.
    """
    if not isinstance(shape, (tuple, list)):
        if hasattr(shape, "__index__") and not np.ndim(shape):
            shape = (shape,)
        elif isinstance(shape, Array) and shape.aval.shape == ():
            shape = (shape,)
    sizes = []
    for n in shape:
        try:
            n = operator.index(n)
        except (AttributeError, TypeError) as error:
            message = ("Shapes must be 1D sequences of concrete values of integer type, got "
                       f"{shape}.")
            if isinstance(n, Tracer):
                fail(TypeError, message, code="traced-shape", because=(
                    "the size is a traced value, known only when the program runs",), notes=(
                    "This concrete value was not available in Python because it depends on "
                    f"{n.builder.describe(n.variable)}",),
                     help="name the argument that it comes from in the `static_argnames` of `jit`")
            raise TypeError(message) from error
        sizes.append(n)
    if sizes and min(sizes) < 0:
        raise TypeError(f"{op} shape must have every element be nonnegative, got "
                        f"{tuple(sizes)}.")
    return tuple(sizes)
