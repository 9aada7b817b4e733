"""Functions of lax that cut and replace parts: slice, dynamic_slice, dynamic_update_slice.

Negative positions count from the end: static ones are resolved here, traced ones by equations
(`lt`, `add`, `select_n`), unless the caller says that there are none.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dtypes import canonicalize_dtype, iinfo, issubdtype
from ...ir.ops.elementwise.arithmetic import add_p
from ...ir.ops.elementwise.comparison import lt_p
from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.movement.dynamic_slicing import dynamic_slice_p
from ...ir.ops.movement.dynamic_update_slicing import dynamic_update_slice_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.settings.context import x64_enabled
from ...ir.values.array import Array
from .. import sharding_notes
from ..operands.dtype_promotion import available, convert, dtype_name, user_dtype
from ..operands.rank_promotion import shape_of
from ..operands.scalars import scalar_of
from ..operands.shape_arguments import canonical_axis
from ..staging.memoized import memoized
from .shape import expand_dims, squeeze

__all__ = [
    "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim", "dynamic_update_index_in_dim",
    "dynamic_update_slice", "dynamic_update_slice_in_dim", "index_in_dim", "slice", "slice_in_dim",
]


@sharding_notes.moved
def slice(operand, start_indices, limit_indices, strides=None):
    """The elements from start to limit along each dimension, in steps of `strides`.

    The bounds are Python ints, one a dimension; the limits are not included.

    >>> st.lax.slice(jnp.arange(10), (2,), (8,), (3,))
    Array([2, 5], dtype=int32)
    """
    return slice_p.bind(operand, start_indices=tuple(map(int, start_indices)),
                        limit_indices=tuple(map(int, limit_indices)),
                        strides=None if strides is None else tuple(map(int, strides)))


def slice_in_dim(operand, start_index, limit_index, stride=1, axis=0):
    """`slice` along one dimension; positions may be negative or None as in Python."""
    shape = shape_of(operand)
    axis = canonical_axis(axis, len(shape))
    n = shape[axis]
    start = 0 if start_index is None else int(start_index)
    limit = n if limit_index is None else int(limit_index)
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis] = start + n if start < 0 else start
    limits[axis] = limit + n if limit < 0 else limit
    strides[axis] = int(stride)
    return slice(operand, starts, limits, strides)


def index_in_dim(operand, index, axis=0, keepdims=True):
    """The slice at one position of a dimension, kept with size 1 or dropped.

    Raises IndexError where there is no such position.
    """
    shape = shape_of(operand)
    axis = canonical_axis(axis, len(shape))
    index, n = int(index), shape[axis]
    place = index + n if index < 0 else index
    if not 0 <= place < n:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {n}")
    result = slice_in_dim(operand, place, place + 1, 1, axis)
    return result if keepdims else squeeze(result, (axis,))


# -- positions that are not known before the program runs ------------------------------------------

def start_positions(shape: Sequence[int], indices: Any, allow_negative: bool | Sequence[bool],
                    name: str, kind: np.dtype | None = None) -> list[Any]:
    """Start indices as operands: scalars of one integer dtype each, counted from the front.

    kind: the dtype of those that are plain numbers, if it is not the usual one.
    """
    if not isinstance(indices, (tuple, list)):
        if len(shape_of(indices)) != 1:
            raise ValueError("Slice indices must be a 1D sequence, got "
                             f"{shape_of(indices)}")
        indices = [squeeze(slice_in_dim(indices, i, i + 1), (0,)) if isinstance(indices, Array)
                   else indices[i] for i in range(shape_of(indices)[0])]
    if len(indices) != len(shape):
        raise ValueError("Length of slice indices must match number of operand dimensions "
                         f"({len(indices)} vs {tuple(shape)})")
    if isinstance(allow_negative, bool):
        allow_negative = [allow_negative] * len(shape)
    wide = any(not isinstance(i, (int, np.generic, np.ndarray)) and dtype_name(i).itemsize == 8
               for i in indices)
    default = kind or (np.dtype("int64") if wide and x64_enabled() else canonicalize_dtype(
        np.dtype("int32")))
    found = [_start_position(i, n, negative, default, name)
             for i, n, negative in zip(indices, shape, allow_negative, strict=True)]
    return _of_one_dtype(indices, found)


def _of_one_dtype(given: Sequence[Any], found: list[Any]) -> list[Any]:
    """`found` positions; all in int32 where one became it, its dimension being long."""
    kinds = {dtype_name(x) for x in found}
    if len(kinds) == 1 or all(dtype_name(x) == dtype_name(i) for x, i in zip(
            found, given, strict=True)):
        return found
    return [convert(x, np.dtype("int32")) if dtype_name(x).itemsize < 4 else x for x in found]


def _start_position(i: Any, n: int, negative: bool, default: np.dtype, name: str) -> Any:
    """A start as a number or traced integer; negative ones count from the end if `negative`."""
    if isinstance(i, int) or (isinstance(i, (np.generic, np.ndarray)) and np.ndim(i) == 0
                              and np.issubdtype(np.asarray(i).dtype, np.integer)):
        place = int(i)
        return default.type(place + n if place < 0 and negative else place)
    dtype = dtype_name(i)
    if not issubdtype(dtype, np.integer):
        raise TypeError(f"index arguments to {name} must be integers of the same type, got: "
                        f"{dtype}")
    if not negative or issubdtype(dtype, np.unsignedinteger):
        return i
    return wrap_negative(i, n)


def held(i: Any, n: int) -> Any:
    """Indices in a dtype of the current mode that holds n: in int32 if theirs is smaller."""
    dtype = dtype_name(i)
    if not issubdtype(dtype, np.integer):
        return i
    if dtype.itemsize >= 4:
        if canonicalize_dtype(dtype) == dtype:
            return i
        return convert(i, user_dtype(dtype, ""))        # kept from x64 mode: said, as in JAX
    fits = n <= iinfo(dtype).max and available(dtype) is dtype
    return i if fits else convert(i, np.dtype("int32"))


def wrap_negative(i: Any, n: int) -> Any:
    """Indices with n added where they are negative, as equations."""
    i = held(i, n)
    dtype = dtype_name(i)
    if isinstance(i, Array) and i.aval.weak_type:
        i = convert(i, dtype)
    return select_n_p.bind(lt_p.bind(i, dtype.type(0)), i, add_p.bind(i, scalar_of(n, dtype)))


@sharding_notes.moved
@memoized
def dynamic_slice(operand, start_indices, slice_sizes, *, allow_negative_indices=True):
    """A part of `operand`, of static sizes, at a position that may be computed.

    start_indices: one integer a dimension. The part is moved so that it lies inside `operand`.
    slice_sizes: the sizes of the part, Python ints. Raises TypeError for sizes greater than those
    of the operand.

    >>> st.lax.dynamic_slice(jnp.arange(5), (1,), (2,))
    Array([1, 2], dtype=int32)
    >>> st.lax.dynamic_slice(jnp.arange(5), (9,), (2,))
    Array([3, 4], dtype=int32)
    """
    sizes = tuple(map(int, slice_sizes))
    starts = start_positions(shape_of(operand), start_indices, allow_negative_indices,
                             "dynamic_slice")
    return dynamic_slice_p.bind(operand, *starts, slice_sizes=sizes)


@memoized
def dynamic_update_slice(operand, update, start_indices, *, allow_negative_indices=True):
    """`operand` with the part at `start_indices` replaced by `update`.

    The part has the shape of `update`; it is moved so that it lies inside `operand`.

    Sharding
      Auto: each device writes what falls into its block.
      Explicit: operand and update must be split alike, else ShardingTypeError; so is the result.
      Manual: writes into each device's block; positions count within it.

    >>> st.lax.dynamic_update_slice(jnp.zeros(5), jnp.ones(2), (3,))
    Array([0., 0., 0., 1., 1.], dtype=float32)
    """
    starts = start_positions(shape_of(operand), start_indices, allow_negative_indices,
                             "dynamic_update_slice")
    return dynamic_update_slice_p.bind(operand, update, *starts)


def _starts_in_dim(shape: Sequence[int], index: Any, axis: int, allow_negative: bool, name: str
                   ) -> list[Any]:
    """The operands for a start in one dimension; the others start at 0, in the index's dtype."""
    starts: list[Any] = [0] * len(shape)
    starts[axis] = index
    kind = dtype_name(index) if isinstance(index, Array) else None
    return start_positions(shape, starts, allow_negative, name,
                           kind if kind is not None and issubdtype(kind, np.integer) else None)


@memoized
def dynamic_slice_in_dim(operand, start_index, slice_size, axis=0, *, allow_negative_indices=True):
    """The `slice_size` elements from `start_index` on along one dimension; see `dynamic_slice`."""
    shape = shape_of(operand)
    axis = canonical_axis(axis, len(shape))
    sizes = list(shape)
    sizes[axis] = int(slice_size)
    starts = _starts_in_dim(shape, start_index, axis, allow_negative_indices, "dynamic_slice")
    return dynamic_slice_p.bind(operand, *starts, slice_sizes=tuple(sizes))


@memoized
def dynamic_index_in_dim(operand, index, axis=0, keepdims=True, *, allow_negative_indices=True):
    """The slice at one position of a dimension, kept with size 1 or dropped."""
    axis = canonical_axis(axis, len(shape_of(operand)))
    result = dynamic_slice_in_dim(operand, index, 1, axis,
                                  allow_negative_indices=allow_negative_indices)
    return result if keepdims else squeeze(result, (axis,))


@memoized
def dynamic_update_slice_in_dim(operand, update, start_index, axis, *, allow_negative_indices=True):
    """`operand` with the part from `start_index` on along one dimension replaced by `update`."""
    shape = shape_of(operand)
    starts = _starts_in_dim(shape, start_index, canonical_axis(axis, len(shape)),
                            allow_negative_indices, "dynamic_update_slice")
    return dynamic_update_slice_p.bind(operand, update, *starts)


def dynamic_update_index_in_dim(operand, update, index, axis, *, allow_negative_indices=True):
    """operand with one position of a dimension replaced; update may lack that dimension."""
    ndim = len(shape_of(operand))
    axis = canonical_axis(axis, ndim)
    if len(shape_of(update)) != ndim:
        update = expand_dims(update, (axis,))
    return dynamic_update_slice_in_dim(operand, update, index, axis,
                                       allow_negative_indices=allow_negative_indices)
