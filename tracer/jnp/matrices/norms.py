"""Norms of vectors and matrices."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.ops.elementwise.arithmetic import mul_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...operands.dtype_promotion import check_arraylike, convert, is_complex
from ...operands.shape_arguments import canonical_axes
from ...staging.constants import as_array
from ...staging.memoized import memoized
from ..elementwise.arithmetic import absolute, real_dtype, sqrt
from ..manipulation.shaping import moveaxis
from ..reductions import reduce as reductions
from .decompositions import _inexact, svd


@sharding_notes.reduction
@memoized
def norm(x, ord=None, axis=None, keepdims=False):
    """The norm of all elements, of vectors along `axis`, or of matrices over a pair of axes.

    ord: None, the root of the sum of squares; of vectors any number, inf or -inf; of matrices
    "fro", "nuc", 1, 2, inf and their negatives. Raises ValueError for others.

    >>> jnp.linalg.norm(jnp.array([[3.0, 4.0], [6.0, 8.0]]), axis=1)
    Array([ 5., 10.], dtype=float32)
    """
    (x,) = _inexact("norm", x)
    if axis is None:
        if ord is None:
            return sqrt(reductions.sum(_squares(x), keepdims=keepdims))
        axes = tuple(range(x.ndim))
    else:
        axes = canonical_axes(axis, x.ndim)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise ValueError(f"Improper number of axes for norm: axis={axes}. Pass one axis to compute a "
                     "vector-norm, or two axes to compute a matrix-norm.")


def _squares(x: Array) -> Array:
    return lax.real(mul_p.bind(x, lax.conj(x))) if is_complex(x) else mul_p.bind(x, x)


def _vector_norm(x: Array, ord: Any, axis: Any, keepdims: bool) -> Array:
    """The norm of order `ord` along dimensions, as in `numpy.linalg.norm`."""
    if ord is None or (not isinstance(ord, (str, Array)) and ord == 2):
        return sqrt(reductions.sum(_squares(x), axis=axis, keepdims=keepdims))
    if isinstance(ord, str):
        raise ValueError(f"Invalid order '{ord}' for vector norm.")
    if not isinstance(ord, Array) and ord == 0:
        return reductions.sum(lax.ne(x, lax.full_like(x, 0)), dtype=real_dtype(x.dtype), axis=axis,
                              keepdims=keepdims)
    size = absolute(x)
    if not isinstance(ord, Array):
        if ord == np.inf:
            return reductions.max(size, axis=axis, keepdims=keepdims, initial=0)
        if ord == -np.inf:
            return reductions.min(size, axis=axis, keepdims=keepdims, initial=np.inf)
        if ord == 1:
            return reductions.sum(size, axis=axis, keepdims=keepdims)
    exponent = convert(ord, size.dtype)
    total = reductions.sum(lax.pow(size, exponent), axis=axis, keepdims=keepdims)
    return lax.pow(total, lax.reciprocal(exponent) if isinstance(exponent, Array) else
                   convert(1 / exponent, size.dtype))


def _matrix_norm(x: Array, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    """The norm of order `ord` of matrices in two dimensions, as in `numpy.linalg.norm`."""
    row, column = axes
    if ord is None or ord in ("f", "fro"):
        return sqrt(reductions.sum(_squares(x), axis=axes, keepdims=keepdims))

    def of_sums(reduce: Any, summed: int, kept: int, initial: Any) -> Array:
        if not keepdims and kept > summed:
            kept -= 1
        sums = reductions.sum(absolute(x), axis=summed, keepdims=keepdims)
        return reduce(sums, axis=kept, keepdims=keepdims, initial=initial)

    if not isinstance(ord, str):
        if ord == 1:
            return of_sums(reductions.max, row, column, 0)
        if ord == -1:
            return of_sums(reductions.min, row, column, np.inf)
        if ord == np.inf:
            return of_sums(reductions.max, column, row, 0)
        if ord == -np.inf:
            return of_sums(reductions.min, column, row, np.inf)
    if ord in ("nuc", 2, -2):
        s = svd(moveaxis(x, axes, (-2, -1)), compute_uv=False)
        if ord == "nuc":
            y = reductions.sum(s, axis=-1)
        elif ord == 2:
            y = reductions.max(s, axis=-1, initial=0)
        else:
            y = reductions.min(s, axis=-1, initial=np.inf)
        return lax.expand_dims(y, sorted(axes)) if keepdims else y
    raise ValueError(f"Invalid order '{ord}' for matrix norm.")


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """Norms of vectors along dimensions, of the flattened array for axis=None."""
    check_arraylike("jnp.linalg.vector_norm", x)
    x = as_array(x)
    if axis is None or isinstance(axis, tuple):
        (x,) = _inexact("vector_norm", x)
        axes = tuple(range(x.ndim)) if axis is None else canonical_axes(axis, x.ndim)
        return _vector_norm(x, ord, axes, keepdims)
    return norm(x, ord, axis, keepdims)


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """The norms of the matrices in the last two dimensions; `ord` as in `norm`."""
    return norm(x, ord, (-2, -1), keepdims)
