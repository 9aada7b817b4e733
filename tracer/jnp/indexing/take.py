"""Elements by position: take, take_along_axis, diagonals, put, index grids."""
from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ....ir.dtypes import issubdtype
from ....ir.ops.elementwise.arithmetic import add_p, div_p, mul_p, rem_p
from ....ir.ops.elementwise.comparison import lt_p
from ....ir.ops.movement.creation import iota_p
from ....ir.ops.movement.reshape import reshape_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...lax.slicing import held, wrap_negative
from ...operands.broadcasting import select_of, to_type
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    literal_like,
    promote_dtypes,
    user_dtype,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import BOOL, int_default
from ...operands.shape_arguments import canonical_axis
from ...staging.constants import as_array, concrete_value
from ...staging.memoized import memoized
from ..creation.ranges import arange
from ..elementwise.clipping import clip
from ..elementwise.division import remainder
from ..manipulation.diagonals import tile_to
from ..manipulation.shaping import broadcast_shapes, ravel, reshape
from .indexed_update import IndexUpdateRef
from .searching import nonzero

__all__ = [
    "fromfunction", "indices", "ix_", "meshgrid", "place", "put", "put_along_axis",
    "ravel_multi_index", "take", "take_along_axis", "unravel_index",
]

# -- take ------------------------------------------------------------------------------------------


@sharding_notes.indexed
@memoized
def take(a, indices, axis=None, out=None, mode=None, unique_indices=False,
         indices_are_sorted=False, fill_value=None):
    """The slices of `a` at `indices` along the dimension `axis`.

    indices: integers of any shape, which takes the place of the dimension. axis: None takes
    elements of the flattened array. mode: of indices out of range, "fill" (the default) gives
    fill_value or NaN (the least or greatest integer), "clip" the nearest slice, "wrap" counts on
    from the other end.

    >>> table = jnp.array([[1, 2], [3, 4], [5, 6]])
    >>> jnp.take(table, jnp.array([2, 0]), axis=0)
    Array([[5, 6],
           [1, 2]], dtype=int32)
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.take is not supported.")
    check_arraylike("take", a, indices)
    x, i = as_array(a), indices if isinstance(indices, (Array, np.ndarray)) else np.asarray(
        indices)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim)
    n = x.shape[axis]
    if not issubdtype(dtype_name(i), np.integer):
        raise ValueError(f"indices must have an integer type, got {dtype_name(i)}")
    gather_mode = None
    if mode in ("drop", "promise_in_bounds"):
        raise ValueError(f"Invalid mode {mode!r} for np.take; the modes are 'fill', 'clip' "
                         "and 'wrap'")
    if mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.take is not supported.")
    if mode == "wrap":
        i = remainder(held(i, n), np.int32(n)) if n else i
        gather_mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    elif mode == "clip" or mode is lax.GatherScatterMode.CLIP:
        gather_mode = lax.GatherScatterMode.CLIP
    else:
        gather_mode = (lax.GatherScatterMode.FILL_OR_DROP if mode is None
                       else lax.GatherScatterMode.from_any(mode))
        if not isinstance(i, Array):
            i = np.where(np.asarray(i) < 0, np.asarray(i) + n, i).astype(np.int32)
        elif not issubdtype(i.dtype, np.unsignedinteger):
            i = wrap_negative(convert(i, np.dtype("int32")) if i.dtype.itemsize < 4 else i, n)
    shape = shape_of(i)
    if not n and 0 not in shape:
        raise IndexError("Cannot do a non-empty jnp.take() from an empty axis.")
    rank = len(shape)
    index_vectors = lax.broadcast_in_dim(as_array(i), (*shape, 1), tuple(range(rank)))
    sizes = [1 if d == axis else m for d, m in enumerate(x.shape)]
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + rank, x.ndim + rank - 1)),
        collapsed_slice_dims=(axis,), start_index_map=(axis,))
    return lax.gather(x, index_vectors, numbers, sizes, mode=gather_mode,
                      unique_indices=unique_indices, indices_are_sorted=indices_are_sorted,
                      fill_value=fill_value)


@sharding_notes.indexed
@memoized
def take_along_axis(arr, indices, axis=-1, mode=None, fill_value=None, *,
                    wrap_negative_indices=None):
    """The elements of `arr` at positions along `axis` that may differ from line to line.

    indices: integers, of the rank of `arr`; its other dimensions are those of `arr`, or 1.
    The result has the shape of `indices` along `axis`. mode, fill_value: as in `take`.

    >>> scores = jnp.array([[1, 5, 2], [7, 0, 3]])
    >>> jnp.take_along_axis(scores, jnp.argmax(scores, axis=1, keepdims=True), axis=1)
    Array([[5],
           [7]], dtype=int32)
    """
    check_arraylike("take_along_axis", arr, indices)
    x, i = as_array(arr), as_array(indices)
    if not issubdtype(i.dtype, np.integer):
        raise TypeError("take_along_axis indices must be of integer type, got "
                        f"{i.dtype}")
    if axis is None:
        if i.ndim != 1:
            raise ValueError("take_along_axis indices must be 1D if axis=None, got shape "
                             f"{i.shape}")
        x, axis = ravel(x), 0
    if x.ndim != i.ndim:
        raise ValueError("indices and arr must have the same number of dimensions; "
                         f"{i.ndim} vs. {x.ndim}")
    axis = canonical_axis(axis, x.ndim)
    gather_mode = (lax.GatherScatterMode.FILL_OR_DROP if mode is None
                   else lax.GatherScatterMode.from_any(mode))
    wrap = gather_mode is not lax.GatherScatterMode.PROMISE_IN_BOUNDS \
        if wrap_negative_indices is None else wrap_negative_indices
    if i.dtype.itemsize < 4:
        i = convert(i, np.dtype("int32"))
    if wrap and not issubdtype(i.dtype, np.unsignedinteger):
        i = wrap_negative(i, x.shape[axis])
    others = [d for d in range(x.ndim) if d != axis]
    for d in others:
        if x.shape[d] != i.shape[d] and 1 not in (x.shape[d], i.shape[d]):
            broadcast_shapes(tuple(x.shape[e] for e in others), tuple(i.shape[e] for e in others))
    if 0 in i.shape:
        shape = tuple(m if d == axis or m != 1 else x.shape[d] for d, m in enumerate(i.shape))
        return lax.full(shape, 0, x.dtype)
    # Dimensions of equal size go in step; of arr's size 1 ones nothing is needed but position 0;
    # of the indices' size 1 ones the whole of arr's.
    batch = [d for d in others if x.shape[d] == i.shape[d] and x.shape[d] != 1]
    stretched = [d for d in others if i.shape[d] == 1 and x.shape[d] != 1]
    collapsed = [d for d in range(x.ndim) if d not in batch and d not in stretched]
    keep = [d for d in range(i.ndim) if d not in stretched]
    index_shape = tuple(i.shape[d] for d in keep)
    vectors = reshape_p.bind(i, new_sizes=(*index_shape, 1), dimensions=None, sharding=None)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(stretched), collapsed_slice_dims=tuple(collapsed),
        start_index_map=(axis,), operand_batching_dims=tuple(batch),
        start_indices_batching_dims=tuple(keep.index(d) for d in batch))
    sizes = [x.shape[d] if d in stretched else 1 for d in range(x.ndim)]
    return lax.gather(x, vectors, numbers, sizes, mode=gather_mode, fill_value=fill_value)


# -- writing ---------------------------------------------------------------------------------------

def _new_only(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(f"jnp.{name} cannot modify arrays in-place, because JAX arrays are "
                         "immutable. Pass inplace=False to instead return an updated array.")


def put(a, ind, v, mode=None, *, inplace=True):
    """`a` with elements of the flattened array replaced by `v`; needs `inplace=False`.

    mode: what of positions that are out of bounds. "wrap": they count on from the start; "clip":
    they are the last, or, negative ones, the first; by default the same, but those from -size on
    count from the end.
    """
    _new_only("put", inplace)
    check_arraylike("put", a, ind, v)
    x, i, values = as_array(a), ravel(ind), ravel(v)
    if not x.size or not i.size or not values.size:
        return x
    if values.size < i.size:
        values = tile_to(values, i.size)
    values, i = lax.slice_in_dim(values, 0, i.size), held(i, x.size)
    if mode is None:
        scatter_mode = "clip"
    elif mode == "clip":
        i, scatter_mode = clip(i, 0, x.size - 1), "promise_in_bounds"
    elif mode == "wrap":
        i, scatter_mode = remainder(i, x.size), "promise_in_bounds"
    elif mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.put is not supported.")
    else:
        raise ValueError(f"mode should be one of 'wrap' or 'clip'; got {mode=}")
    flat = IndexUpdateRef(ravel(x), i).set(values, mode=scatter_mode)
    return reshape(flat, x.shape)


def put_along_axis(arr, indices, values, axis, inplace=True, *, mode=None):
    """arr with elements at indices along a dimension replaced, see `take_along_axis`."""
    _new_only("put_along_axis", inplace)
    check_arraylike("put_along_axis", arr, indices, values)
    x, i = as_array(arr), as_array(indices)
    if axis is None:
        if i.ndim != 1:
            raise ValueError("put_along_axis indices must be 1D if axis=None, got shape "
                             f"{i.shape}")
        return reshape(put_along_axis(ravel(x), i, values, 0, inplace=False, mode=mode), x.shape)
    if i.ndim != x.ndim:
        raise ValueError("put_along_axis arguments 'arr' and 'indices' must have same ndim. Got "
                         f"arr.ndim={x.ndim} and indices.ndim={i.ndim}.")
    axis = canonical_axis(axis, x.ndim)
    where = [i if d == axis else reshape(arange(n), [-1 if e == d else 1 for e in range(x.ndim)])
             for d, n in enumerate(x.shape)]
    return IndexUpdateRef(x, tuple(where)).set(values, mode=mode)


def place(arr, mask, vals, *, inplace=True):
    """arr with the elements where mask is true replaced by vals in turn."""
    _new_only("place", inplace)
    check_arraylike("place", arr, mask, vals)
    x, values = as_array(arr), ravel(vals)
    if math.prod(shape_of(mask)) != x.size:
        raise ValueError("place: arr and mask must have the same size")
    if not values.size:
        raise ValueError("Cannot place values from an empty array")
    if not x.size:
        return x
    places = nonzero(ravel(mask), size=x.size, fill_value=x.size)[0]
    out = IndexUpdateRef(ravel(x), places).set(
        lax.slice_in_dim(tile_to(values, x.size), 0, x.size), mode="drop")
    return reshape(out, x.shape)


# -- index grids -----------------------------------------------------------------------------------

def unravel_index(indices, shape):
    """Positions in an array of this shape of positions in the flattened array."""
    check_arraylike("unravel_index", indices)
    sizes = [int(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    i = as_array(indices)
    total = math.prod(sizes)
    i = clip(held(i, total), -total, total - 1)
    i = select_of(lt_p.bind(i, literal_like(0, i)), i,
                  add_p.bind(i, literal_like(total, i)))
    out = []
    for n in reversed(sizes):
        out.append(rem_p.bind(i, literal_like(n, i)))
        i = div_p.bind(i, literal_like(n, i))
    return tuple(reversed(out))


def ravel_multi_index(multi_index, dims, mode="raise", order="C", *, dtype=None):
    """Positions in the flattened array of positions along each dimension."""
    if len(multi_index) != len(dims):
        raise ValueError(f"len(multi_index)={len(multi_index)} != len(dims)={len(dims)}")
    dims = tuple(int(n) for n in dims)
    check_arraylike("ravel_multi_index", *multi_index)
    indices = [as_array(i) for i in multi_index]
    if any(not issubdtype(i.dtype, np.integer) for i in indices):
        raise TypeError("only int indices permitted")
    if mode == "raise":
        for i, n in zip(indices, dims, strict=True):
            value = concrete_value(
                i, "ravel_multi_index with mode='raise'; use mode='wrap' or 'clip'")
            if value.size and (value.min() < 0 or value.max() >= n):
                raise ValueError("invalid entry in coordinates array")
    elif mode == "clip":
        indices = [clip(held(i, n), 0, n - 1) for i, n in zip(indices, dims, strict=True)]
    elif mode == "wrap":
        indices = [remainder(held(i, n), n) for i, n in zip(indices, dims, strict=True)]
    else:
        raise ValueError(f"invalid mode={mode!r}. Expected 'raise', 'wrap', or 'clip'")
    if order not in ("C", "F"):
        raise ValueError(f"invalid order={order!r}. Expected 'C' or 'F'")
    strides = [math.prod(dims[d + 1:]) if order == "C" else math.prod(dims[:d])
               for d in range(len(dims))]
    result = int_default() if dtype is None else user_dtype(dtype, "ravel_multi_index")
    if not issubdtype(result, np.integer):
        raise ValueError(f"dtype={result!r} is not an integer type.")
    if math.prod(dims) - 1 > np.iinfo(result).max:
        raise ValueError(f"jnp.ravel_multi_index: dtype={result!r} not large enough to hold "
                         f"flattened index for {dims=}. Use the dtype argument to pass a suitable "
                         "dtype (e.g. dtype=np.min_scalar_type(prod(dims))).")
    total: Any = None
    for i, s in zip(promote_dtypes(*indices), strides, strict=True):
        term = mul_p.bind(convert(i, result), convert(s, result))
        total = term if total is None else lax.add(*(to_type(v, lax.broadcast_shapes(
            shape_of(total), shape_of(term))) for v in (total, term)))
    return total


@sharding_notes.rearranged
def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    """Vectors spread over a grid: for each of them an array that varies along its dimension alone.

    indexing: "xy" makes the first two dimensions rows and columns, in this order; "ij" takes the
    dimensions as they come. sparse: leave out the repetition, with size 1 in its place.

    >>> rows, columns = jnp.meshgrid(jnp.arange(2), jnp.arange(3), indexing="ij")
    >>> rows + 10 * columns
    Array([[ 0, 10, 20],
           [ 1, 11, 21]], dtype=int32)
    """
    check_arraylike("meshgrid", *xi)
    if not copy:
        raise ValueError("jax.numpy.meshgrid only supports copy=True")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing}")
    vectors = [as_array(x) for x in xi]
    if any(v.ndim != 1 for v in vectors):
        raise ValueError("Arguments to jax.numpy.meshgrid must be 1D, got shapes "
                         f"{[v.shape for v in vectors]}")
    places = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        places[0], places[1] = 1, 0
    sizes = [0] * len(vectors)
    for v, p in zip(vectors, places, strict=True):
        sizes[p] = v.shape[0]
    out = []
    for v, p in zip(vectors, places, strict=True):
        shape = tuple(n if d == p or not sparse else 1 for d, n in enumerate(sizes))
        out.append(lax.broadcast_in_dim(v, shape, (p,)))
    return out


def indices(dimensions, dtype=None, sparse=False):
    """For each dimension of a grid of these sizes an array of the positions along it, stacked.

    >>> jnp.indices((2, 2))
    Array([[[0, 0],
            [1, 1]],
           [[0, 1],
            [0, 1]]], dtype=int32)
    """
    dims = tuple(operator.index(n) for n in dimensions)
    kind = int_default() if dtype is None else user_dtype(dtype, "indices")
    out = []
    for d, n in enumerate(dims):
        row = iota_p.bind(dtype=kind, shape=(n,), dimension=0, sharding=None)
        shape = tuple(m if e == d or not sparse else 1 for e, m in enumerate(dims))
        out.append(lax.broadcast_in_dim(row, shape, (d,)))
    if sparse:
        return tuple(out)
    return lax.stack(out, 0) if out else lax.full((0,), 0, kind)


def fromfunction(function, shape, *, dtype=float, **kwargs):
    """The array of `function`, called with the positions along each dimension of a grid."""
    sizes = [operator.index(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    kind = user_dtype(dtype, "fromfunction")
    grids = [lax.broadcast_in_dim(
        iota_p.bind(dtype=kind, shape=(n,), dimension=0, sharding=None), tuple(sizes), (d,))
        for d, n in enumerate(sizes)]
    out = function(*grids, **kwargs)
    return as_array(out) if not isinstance(out, (tuple, list, dict)) else out


def ix_(*args):
    """The vectors, shaped so that together they index a grid: one dimension each."""
    check_arraylike("ix_", *args)
    n = len(args)
    out = []
    for d, x in enumerate(args):
        x = as_array(x)
        if x.ndim != 1:
            raise ValueError(f"Arguments to jax.numpy.ix_ must be 1-dimensional, got shape "
                             f"{x.shape}")
        if x.dtype == BOOL:
            raise NotImplementedError("Boolean arguments to jax.numpy.ix_ are not implemented")
        if not x.size:
            x = convert(x, int_default())
        out.append(x if n == 1 else reshape(x, [-1 if e == d else 1 for e in range(n)]))
    return tuple(out)
