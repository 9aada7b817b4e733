"""Products of linear algebra under their array-API names."""
from __future__ import annotations

import itertools

from ...operands.dtype_promotion import check_arraylike
from ...operands.rank_promotion import shape_of
from ...staging.constants import as_array
from ..manipulation.diagonals import diagonal as _diagonal
from ..manipulation.diagonals import trace as _trace
from ..manipulation.shaping import matrix_transpose as _matrix_transpose
from . import contraction
from .einsum import einsum


def multi_dot(arrays, *, precision=None):
    """The matrix product of several arrays, in the order that takes the fewest operations."""
    check_arraylike("jnp.linalg.multi_dot", *arrays)
    operands = [as_array(x) for x in arrays]
    if len(operands) < 2:
        raise ValueError("multi_dot requires at least two arrays; got len(arrays)="
                         f"{len(operands)}")
    if any(x.ndim != 2 for x in operands[1:-1]) or operands[0].ndim not in (1, 2) or (
            operands[-1].ndim not in (1, 2)):
        raise ValueError("multi_dot: input arrays must all be two-dimensional, except for the "
                         "first and last array which may be 1 or 2 dimensional. Got array shapes "
                         f"{[x.shape for x in operands]}")
    if any(x.shape[-1] != y.shape[0] for x, y in itertools.pairwise(operands)):
        raise ValueError("multi_dot: last dimension of each array must match first dimension of "
                         f"following array. Got array shapes {[x.shape for x in operands]}")
    names = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    name = next(names)
    texts, head = [], ""
    for i, x in enumerate(operands):
        if x.ndim == 1 and i == 0:
            texts.append(name)
            continue
        if i == 0:
            head = name
        if x.ndim == 1:
            texts.append(name)
            name = ""
            continue
        following = next(names)
        texts.append(name + following)
        name = following
    equation = f"{','.join(texts)}->{head}{name}"
    return einsum(equation, *operands, optimize="auto", precision=precision)


def matmul(x1, x2, /, *, precision=None, preferred_element_type=None):
    """The matrix product over the last two dimensions; all is as in `shardtrace.numpy.matmul`."""
    return contraction.matmul(x1, x2, precision=precision,
                              preferred_element_type=preferred_element_type)


def vecdot(x1, x2, /, *, axis=-1, precision=None, preferred_element_type=None):
    """Sums of products along a dimension, the first operand conjugated."""
    return contraction.vecdot(x1, x2, axis=axis, precision=precision,
                              preferred_element_type=preferred_element_type)


def tensordot(x1, x2, /, *, axes=2, precision=None, preferred_element_type=None,
              out_sharding=None):
    """Sum of products over pairs of dimensions, see `jnp.tensordot`."""
    return contraction.tensordot(x1, x2, axes=axes, precision=precision, out_sharding=out_sharding,
                                 preferred_element_type=preferred_element_type)


def cross(x1, x2, /, *, axis=-1):
    """The vector products of vectors of size 3 along `axis`; the others broadcast."""
    check_arraylike("jnp.linalg.cross", x1, x2)
    a, b = shape_of(x1), shape_of(x2)
    if a[axis] != 3 or b[axis] != 3:
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors, but they "
                         f"have x1.shape[axis]={a[axis]} and x2.shape[axis]={b[axis]}")
    return contraction.cross(x1, x2, axis=axis)


def outer(x1, x2, /):
    """The products of each element of one vector with each of the other: [m] and [n] give [m, n].
    """
    check_arraylike("jnp.linalg.outer", x1, x2)
    if len(shape_of(x1)) != 1 or len(shape_of(x2)) != 1:
        raise ValueError("Input arrays must be one-dimensional, but they are "
                         f"x1.ndim={len(shape_of(x1))} x2.ndim={len(shape_of(x2))}")
    return contraction.outer(x1, x2)


def matrix_transpose(x, /):
    """`x` with its last two dimensions swapped: [..., m, n] gives [..., n, m]."""
    return _matrix_transpose(x)


def diagonal(x, /, *, offset=0):
    """The diagonals of the matrices in the last two dimensions, `offset` places off the main one.
    """
    return _diagonal(x, offset=offset, axis1=-2, axis2=-1)


def trace(x, /, *, offset=0, dtype=None):
    """Sums of the diagonals of the matrices in the last two dimensions."""
    return _trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)
