"""Diagonals and triangles of matrices: reading, writing, and their positions."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ....ir.ops.elementwise.arithmetic import add_p
from ....ir.ops.elementwise.comparison import eq_p
from ....ir.ops.movement.creation import iota_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...indexing import indexing as array_indexing
from ...operands.broadcasting import select_of, to_type
from ...operands.dtype_promotion import check_arraylike, convert, narrowed, strong, user_dtype
from ...operands.rank_promotion import shape_of
from ...operands.scalars import BOOL, int_default
from ...operands.shape_arguments import canonical_axes
from ...shardings.eager_mesh import mesh_of_operands
from ...staging.constants import as_array
from ..creation.ranges import arange
from ..indexing.indexed_update import IndexUpdateRef
from ..indexing.searching import nonzero
from ..reductions.reduce import sum as sum_of
from .shaping import moveaxis, ravel

__all__ = [
    "diag", "diag_indices", "diag_indices_from", "diagflat", "diagonal", "fill_diagonal",
    "mask_indices", "trace", "tril_indices", "tril_indices_from", "triu_indices",
    "triu_indices_from",
]


def diagonal(a, offset=0, axis1=0, axis2=1):
    """The diagonals of the matrices that two dimensions span, as the last dimension."""
    check_arraylike("diagonal", a)
    x = as_array(a)
    if x.ndim < 2:
        raise ValueError("diagonal requires an array of at least two dimensions.")
    offset = operator.index(offset)
    d1, d2 = canonical_axes((axis1, axis2), x.ndim)
    x = moveaxis(x, (d1, d2), (-2, -1))
    n, m = x.shape[-2:]
    size = max(0, min(n + min(offset, 0), m - max(offset, 0)))
    places = arange(size)
    rows = places if offset >= 0 else add_p.bind(np.int32(-offset), places)
    columns = places if offset <= 0 else add_p.bind(np.int32(offset), places)
    out = array_indexing.get_item(x, (..., rows, columns))
    # Of these, JAX has a second way for other hardware, whose result is not weak.
    plain = np.ndim(a) == 2 and n == m and not offset and x.dtype != BOOL
    return strong(out) if plain else out


@sharding_notes.indexed
def diag(v, k=0):
    """The k-th diagonal of a matrix; or, of a vector, the matrix that has it as its k-th diagonal.

    >>> jnp.diag(jnp.array([[1, 2], [3, 4]])), jnp.diag(jnp.array([1, 2]))
    (Array([1, 4], dtype=int32), Array([[1, 0],
           [0, 2]], dtype=int32))
    """
    check_arraylike("diag", v)
    x = as_array(v)
    if x.ndim == 2:
        return diagonal(x, offset=k)
    if x.ndim != 1:
        raise ValueError("diag input must be 1d or 2d")
    k = operator.index(k)
    n = x.shape[0] + abs(k)
    zero = convert(0, x.dtype, x.aval.weak_type)
    padded = lax.pad(x, zero, [(max(0, -k), max(0, k), 0)])
    index = np.dtype("int32")
    rows = iota_p.bind(dtype=index, shape=(n, n), dimension=0, sharding=None)
    columns = iota_p.bind(dtype=index, shape=(n, n), dimension=1, sharding=None)
    mask = eq_p.bind(add_p.bind(rows, np.int32(k)), columns)
    values = lax.expand_dims(padded, (1,))
    return select_of(mask, zero, to_type(values, (n, n)))


def diagflat(v, k=0):
    """The matrix with the elements of v, flattened, on its k-th diagonal."""
    check_arraylike("diagflat", v)
    return strong(diag(ravel(narrowed(v)), k))


def trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    """The sums of the diagonals of the matrices that two dimensions span.

    offset: which diagonal, above the main one if positive. axis1, axis2: the dimensions of the
    matrices, which the result lacks. dtype: of the result; narrow integers give int32
    or uint32.

    >>> jnp.trace(jnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.trace is not supported.")
    check_arraylike("trace", a)
    x = as_array(a)
    d1, d2 = canonical_axes((axis1, axis2), x.ndim)
    if dtype is not None:
        dtype = user_dtype(dtype, "trace")
    x = moveaxis(x, (d1, d2), (-2, -1))
    n, m = x.shape[-2:]
    index = np.dtype("int32")
    rows = iota_p.bind(dtype=index, shape=(n, m), dimension=0, sharding=None)
    columns = iota_p.bind(dtype=index, shape=(n, m), dimension=1, sharding=None)
    mask = eq_p.bind(add_p.bind(rows, convert(offset, index)), columns)
    with mesh_of_operands(x):
        x = select_of(mask, lax.full_like(x, 0), x)
    return sum_of(x, axis=(-2, -1), dtype=dtype)


def fill_diagonal(a, val, wrap=False, *, inplace=True):
    """a with its diagonal replaced; arrays cannot be changed, so inplace must be False."""
    if inplace:
        raise NotImplementedError(
            "JAX arrays are immutable, must use inplace=False")
    if wrap:
        raise NotImplementedError("wrap=True is not implemented, must use wrap=False")
    check_arraylike("fill_diagonal", a, val)
    x = as_array(a)
    if x.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    n = min(x.shape)
    values = as_array(val)
    if values.ndim:
        flat = ravel(values)
        values = array_indexing.get_item(tile_to(flat, n), (slice(0, n),))
    places = arange(n)
    return IndexUpdateRef(x, (places,) * x.ndim).set(values)


def tile_to(x: Array, n: int) -> Array:
    """A vector repeated until it has at least n elements."""
    return lax.tile(x, (max(1, -(-n // max(x.size, 1))),))


def diag_indices(n, ndim=2):
    """Indices of the diagonal of an array of ndim dimensions of size n."""
    n, ndim = operator.index(n), operator.index(ndim)
    if n < 0:
        raise ValueError(f"n argument to diag_indices must be nonnegative, got {n}")
    if ndim < 0:
        raise ValueError(f"ndim argument to diag_indices must be nonnegative, got {ndim}")
    return (arange(n),) * ndim


def diag_indices_from(arr):
    """The indices of the main diagonal of `arr`, one vector for each dimension."""
    check_arraylike("diag_indices_from", arr)
    shape = shape_of(arr)
    if len(shape) < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(shape[0], len(shape))


def _triangle_indices(n: int, k: int, m: int | None, lower: bool) -> tuple[Array, Array]:
    m = n if m is None else m
    mask = (np.arange(n)[:, None] + k >= np.arange(m)[None, :])
    if not lower:
        mask = np.arange(n)[:, None] + k <= np.arange(m)[None, :]
    rows, columns = np.nonzero(mask)
    return as_array(rows.astype(int_default())), as_array(columns.astype(int_default()))


def tril_indices(n, k=0, m=None):
    """The indices (rows, columns) of the lower triangle of an n by m matrix, up to diagonal k."""
    return _triangle_indices(n, k, m, True)


def triu_indices(n, k=0, m=None):
    """The indices (rows, columns) of the upper triangle of an n by m matrix, from diagonal k on."""
    return _triangle_indices(n, k, m, False)


def tril_indices_from(arr, k=0):
    """The indices (rows, columns) of the lower triangle of the matrix `arr`, up to diagonal k."""
    return tril_indices(*_of_matrix(arr, k))


def triu_indices_from(arr, k=0):
    """The indices (rows, columns) of the upper triangle of the matrix `arr`, from diagonal k on."""
    return triu_indices(*_of_matrix(arr, k))


def _of_matrix(arr: Any, k: int) -> tuple[int, int, int]:
    shape = shape_of(arr)
    if len(shape) != 2:
        raise ValueError(f"Only 2-D inputs are accepted, got shape {shape}")
    return shape[0], k, shape[1]


def mask_indices(n, mask_func, k=0, *, size=None):
    """Indices of the elements of an n by n matrix of ones that mask_func keeps."""
    return nonzero(mask_func(lax.full((n, n), np.float32(1)), k), size=size)
