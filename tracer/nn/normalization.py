"""Functions of a whole dimension: softmax, logsumexp, standardize, one_hot.

The dimension may be sharded: the reductions in them are then global.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from .. import lax, sharding_notes
from ..jnp.creation.arrays import astype
from ..jnp.elementwise.arithmetic import exp, log, square
from ..jnp.elementwise.clipping import clip
from ..jnp.elementwise.logic import equal
from ..jnp.elementwise.two_operands import divide, multiply_function, subtract_function
from ..jnp.indexing.searching import choose_where
from ..jnp.reductions import moments
from ..jnp.reductions import reduce as reductions
from ..lax.communication.manual_axes import axis_index, axis_size
from ..lax.reduction import extreme
from ..lax.slicing import held
from ..operands.dtype_promotion import (
    check_arraylike,
    dtype_name,
    promote_args_inexact,
    promote_dtypes,
    user_dtype,
)
from ..operands.scalars import LEVEL, float_default
from ..operands.shape_arguments import canonical_axis, static_int
from ..staging.constants import as_array
from ..staging.memoized import memoized


def _greatest(x: Any, axis: Any, where: Any) -> Any:
    """The maximum, which is subtracted before exponentials; the least value where there is none."""
    dtype = dtype_name(x)
    low = extreme(dtype, False) if LEVEL[dtype] < 3 else -np.inf
    return reductions.max(x, axis=axis, where=where, initial=low, keepdims=True)


@sharding_notes.blockwise
@memoized
def softmax(x, axis=-1, where=None):
    """exp(x) divided by its sum over `axis`: positive numbers that add up to 1.

    axis: an int, a tuple, or None for all dimensions. where: a mask of the elements that take part;
    the others give 0. The greatest element is subtracted first, so that nothing overflows.

    >>> st.nn.softmax(jnp.array([[1.0, 1.0], [0.0, 1000.0]]))
    Array([[0.5, 0.5],
           [0. , 1. ]], dtype=float32)
    """
    check_arraylike("softmax", x)
    top = _greatest(x, axis, where)
    masked = x if where is None else choose_where(where, x, -np.inf)
    unnormalized = exp(subtract_function(masked, lax.stop_gradient(top)))
    result = divide(unnormalized, reductions.sum(unnormalized, axis=axis, where=where,
                                                 keepdims=True))
    return result if where is None else choose_where(where, result, 0)


@sharding_notes.blockwise
@memoized
def log_softmax(x, axis=-1, where=None):
    """log(softmax(x)) over `axis`, without underflow.

    axis, where: as in `softmax`; elements left out give -inf.

    >>> st.nn.log_softmax(jnp.array([0.0, 1000.0]))
    Array([-1000.,     0.], dtype=float32)
    """
    check_arraylike("log_softmax", x)
    x = as_array(x)
    top = _greatest(x, axis, where)
    masked = x if where is None else choose_where(where, x, -np.inf)
    shifted = subtract_function(masked, lax.stop_gradient(top))
    total = log(reductions.sum(exp(shifted), axis=axis, where=where, keepdims=True))
    result = subtract_function(shifted, total)
    return result if where is None else choose_where(where, result, -np.inf)


@sharding_notes.blockwise
@memoized
def standardize(x, axis=-1, mean=None, variance=None, epsilon=1e-05, where=None, *,
                algorithm="fast"):
    """(x - mean) / sqrt(variance + epsilon), with mean and variance taken over `axis`.

    mean, variance: given ones instead. where: a mask of the elements that count. algorithm: "fast"
    takes the variance as mean(x**2) - mean**2, in one pass, which loses precision where the mean is
    large; "stable" subtracts the mean first.

    >>> st.nn.standardize(jnp.array([1.0, 3.0])).round(3)
    Array([-1.,  1.], dtype=float32)
    """
    check_arraylike("standardize", x)
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"algorithm must be 'fast' or 'stable', got {algorithm!r}")
    if mean is None:
        mean = moments.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        if algorithm == "stable":
            centered = square(subtract_function(x, mean))
            variance = moments.mean(centered, axis, keepdims=True, where=where)
        else:
            squares = moments.mean(square(x), axis, keepdims=True, where=where)
            variance = clip(subtract_function(squares, square(mean)), min=0)
    centered = subtract_function(x, mean)
    scale = lax.rsqrt(*promote_args_inexact("standardize", _sum(variance, epsilon)))
    return multiply_function(centered, scale)


def _sum(a: Any, b: Any) -> Any:
    a, b = promote_dtypes(a, b)
    return lax.add(a, b)


@memoized
def one_hot(x, num_classes, *, dtype=None, axis=-1):
    """Vectors with a 1 at position `x` and 0 elsewhere, along a new dimension of size num_classes.

    x: integers; those outside of 0 to num_classes - 1 give zeros. dtype: float32 by default. axis:
    where the new dimension is in the result, the last by default.

    Sharding
      Auto: each device makes the vectors of its block of `x`.
      Explicit: the dimensions of `x` stay split; the new one is whole.
      Manual: works on each device's block. `axis` may name a mesh axis of size num_classes, along
        which each device gets its own element.

    >>> st.nn.one_hot(jnp.array([0, 2]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    classes = static_int(num_classes)
    kind = float_default() if dtype is None else user_dtype(dtype, "one_hot")
    x = held(as_array(np.asarray(x) if isinstance(x, (list, tuple)) else x), classes)
    if not hasattr(axis, "__index__"):
        if classes != axis_size(axis):
            raise ValueError(f"Expected num_classes to match the size of axis {axis}, but "
                             f"{classes} != {axis_size(axis)}")
        return astype(equal(x, axis_index(axis)), kind)
    place = canonical_axis(axis, x.ndim + 1)
    column = lax.expand_dims(x, (place,))
    shape = [1] * x.ndim
    shape.insert(place, classes)
    row = lax.broadcasted_iota(x.dtype, shape, place)
    return astype(equal(column, row), kind)
