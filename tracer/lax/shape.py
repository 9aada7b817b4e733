"""Functions of lax that change the shape: broadcast, reshape, transpose, join and cut.

Sharding follows the operand; where it cannot, or another one is wanted, the functions that have
`out_sharding=` take it (tracer/shardings/out_sharding.py).
"""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.ops.movement.joining import concatenate_p, split_p, stack_p, unstack_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.reshape import reshape_p
from ...ir.ops.movement.shape import broadcast_in_dim_p, rev_p, squeeze_p, tile_p, transpose_p
from ...ir.support.caches import cached
from ...ir.values.array import Array
from .. import sharding_notes
from ..operands.broadcasting import to_type
from ..operands.rank_promotion import broadcast_shapes as _broadcast_shapes
from ..operands.rank_promotion import shape_of
from ..operands.shape_arguments import canonical_axis, static_shape
from ..shardings.eager_mesh import mesh_of_operands
from ..shardings.out_sharding import output_sharding
from ..staging.constants import as_array

__all__ = [
    "broadcast", "broadcast_in_dim", "broadcast_like", "broadcast_shapes", "broadcast_to_rank",
    "collapse", "concatenate", "expand_dims", "pad", "reshape", "rev", "shape_as_value", "split",
    "squeeze", "stack", "tile", "transpose", "unstack",
]


def broadcast_shapes(*shapes):
    """The shape that shapes (tuples of ints) broadcast to.

    Raises ValueError where they do not.
    """
    for s in shapes:
        if any(isinstance(n, int) and n < 0 for n in (s if isinstance(s, Sequence) else (s,))):
            raise TypeError("Only non-negative indices are allowed when broadcasting static "
                            f"shapes, but got shape {s!r}.")
    return _broadcast_shapes(*(static_shape(s) for s in shapes))


def broadcast(operand, sizes, *, out_sharding=None):
    """`operand` repeated along new leading dimensions of these sizes, in front of its own."""
    sizes = tuple(sizes)
    if not sizes and isinstance(operand, Array) and out_sharding is None:
        return operand
    shape = shape_of(operand)
    dims = tuple(range(len(sizes), len(sizes) + len(shape)))
    return broadcast_in_dim(operand, sizes + tuple(shape), dims, out_sharding=out_sharding)


@sharding_notes.rearranged
def broadcast_in_dim(operand, shape, broadcast_dimensions, *, out_sharding=None):
    """`operand` in a larger shape: its dimension i becomes dimension `broadcast_dimensions[i]`.

    Each keeps its size, or is stretched from size 1. out_sharding: the spec of the result over
    Explicit axes, also along new dimensions. Raises TypeError where the shapes do not fit.

    >>> st.lax.broadcast_in_dim(jnp.array([1, 2]), (2, 3), (0,))
    Array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
    shape = static_shape(shape)
    if out_sharding is None:
        have = shape_of(operand)
        if have == shape and (isinstance(operand, Array) or not shape):
            return as_array(operand)
        sharding = None
    else:
        sharding = output_sharding(out_sharding, "broadcast_in_dim", len(shape))
    return broadcast_in_dim_p.bind(operand, shape=shape, sharding=sharding,
                                   broadcast_dimensions=tuple(map(int, broadcast_dimensions)))


def broadcast_to_rank(x, rank):
    """`x` with dimensions of size 1 added in front until it has this many."""
    shape = shape_of(x)
    if len(shape) == rank:
        return as_array(x)
    if len(shape) > rank:
        raise ValueError(f"Cannot broadcast an array of rank {len(shape)} to rank {rank}")
    return broadcast_in_dim(x, (1,) * (rank - len(shape)) + tuple(shape),
                            tuple(range(rank - len(shape), rank)))


def broadcast_like(arr, like_arr):
    """arr broadcast to the shape of like_arr, dimensions aligned at the end."""
    like_arr = as_array(like_arr)
    like = like_arr.aval
    with mesh_of_operands(like_arr):
        return to_type(arr, like.shape, like.sharding if any(like.entries) else None)


@sharding_notes.reshaped
def reshape(operand, new_sizes, dimensions=None, *, out_sharding=None):
    """The elements of `operand` in another shape, in row-major order.

    new_sizes: ints, with as many elements. dimensions: an order in which the operand's dimensions
    are read first. out_sharding: the PartitionSpec of the result, where it cannot be derived.
    Raises TypeError for a shape with another number of elements.

    >>> st.lax.reshape(jnp.arange(4), (2, 2))
    Array([[0, 1],
           [2, 3]], dtype=int32)
    """
    new_sizes = _new_sizes(new_sizes)
    shape = shape_of(operand)
    order = None if dimensions is None else tuple(map(int, dimensions))
    if order == tuple(range(len(shape))):
        order = None
    sharding = output_sharding(out_sharding, "reshape", len(new_sizes))
    if isinstance(operand, Array) and shape and shape == new_sizes and order is None and (
            sharding is None or operand.aval.sharding is sharding):
        return operand
    return reshape_p.bind(operand, new_sizes=new_sizes, dimensions=order, sharding=sharding)


def _new_sizes(sizes: Sequence[Any]) -> tuple[int, ...]:
    out = tuple(operator.index(n) if hasattr(n, "__index__") else n for n in sizes)
    if any(isinstance(n, int) and n < 0 for n in out):
        raise TypeError(f"reshape new_sizes must all be positive, got {out}.")
    return static_shape(out)


def collapse(operand, start_dimension, stop_dimension=None):
    """operand with the dimensions from start to stop (not included) merged into one."""
    shape = shape_of(operand)
    ndim = len(shape)
    start, stop, _ = slice_indices(start_dimension, stop_dimension, ndim)
    if stop < start:
        raise ValueError(f"Invalid dimension range passed to collapse: {shape}"
                         f"[{start_dimension}:{stop_dimension}]")
    merged = math.prod(shape[start:stop])
    return reshape(operand, (*shape[:start], merged, *shape[stop:]))


def slice_indices(start: int | None, stop: int | None, size: int) -> tuple[int, int, int]:
    """Start and stop as Python's slicing reads them."""
    return slice(start, stop).indices(size)


@sharding_notes.rearranged
def transpose(operand, permutation):
    """`operand` with its dimensions in another order: dimension i is its `permutation[i]`.

    >>> st.lax.transpose(jnp.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    permutation = tuple(int(p) for p in permutation)
    if permutation == tuple(range(len(shape_of(operand)))) and isinstance(operand, Array):
        return operand
    return transpose_p.bind(operand, permutation=permutation)


def squeeze(array, dimensions):
    """`array` without the given dimensions, each of which must have size 1."""
    ndim = len(shape_of(array))
    dimensions = tuple(canonical_axis(d, ndim) for d in dimensions)
    if not dimensions and isinstance(array, Array):
        return array
    return squeeze_p.bind(array, dimensions=dimensions)


def expand_dims(array, dimensions):
    """array with dimensions of size 1 inserted at these positions of the result."""
    dims = tuple(dimensions)
    plan = _expanded if all([type(d) is int for d in dims]) else _expanded.__wrapped__
    sizes, kept = plan(shape_of(array), dims)
    if dims and isinstance(array, Array):
        return broadcast_in_dim_p.bind(array, shape=sizes, sharding=None,
                                       broadcast_dimensions=kept)
    return broadcast_in_dim(array, sizes, kept)


@cached(1024)
def _expanded(shape: tuple[int, ...], dimensions: tuple[int, ...]
              ) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape with size 1 at these positions, and where its own dimensions are then."""
    ndim = len(shape) + len(dimensions)
    new = [canonical_axis(d, ndim) for d in dimensions]
    if len(set(new)) != len(new):
        raise ValueError(f"repeated axis in lax.expand_dims: {dimensions}")
    kept = tuple([d for d in range(ndim) if d not in new])
    sizes = [1] * ndim
    for d, n in zip(kept, shape, strict=True):
        sizes[d] = n
    return tuple(sizes), kept


def rev(operand, dimensions):
    """operand with the order of elements reversed along these dimensions."""
    return rev_p.bind(operand, dimensions=tuple(map(int, dimensions)))


@sharding_notes.joined
def concatenate(operands, dimension):
    """The arrays, of one dtype, joined along a dimension; their other sizes must be equal.

    Raises TypeError where dtypes or sizes differ.

    >>> st.lax.concatenate([jnp.array([1]), jnp.array([2, 3])], 0)
    Array([1, 2, 3], dtype=int32)
    """
    operands = list(operands)
    if not operands:
        raise ValueError("concatenate requires a non-empty sequences of arrays")
    if len(operands) == 1 and isinstance(operands[0], Array):
        return operands[0]
    return concatenate_p.bind(*operands, dimension=int(dimension))


def stack(operands, axis=0):
    """The arrays, all of one type, joined along a new dimension at `axis`."""
    operands = list(operands)
    if not operands:
        raise ValueError("stack requires a non-empty sequences of arrays")
    return stack_p.bind(*operands, axis=canonical_axis(axis, len(shape_of(operands[0])) + 1))


def unstack(x, axis=0):
    """The slices of x along a dimension, which must be unsharded, as a tuple."""
    return tuple(unstack_p.bind(x, axis=canonical_axis(axis, len(shape_of(x)))))


def tile(operand, reps):
    """`operand` repeated `reps[i]` times along dimension i, for every dimension."""
    return tile_p.bind(operand, reps=tuple(map(int, reps)))


def split(operand, sizes, axis=0):
    """operand cut along a dimension into parts of these sizes, as a list."""
    shape = shape_of(operand)
    return list(split_p.bind(operand, sizes=tuple(map(int, sizes)),
                             axis=canonical_axis(axis, len(shape))))


def pad(operand, padding_value, padding_config):
    """operand with padding: (low, high, interior) elements for each dimension, low and high may
    be negative; padding_value is a scalar of the same dtype."""
    config = tuple((int(lo), int(hi), int(inner)) for lo, hi, inner in padding_config)
    return pad_p.bind(operand, padding_value, padding_config=config)


def shape_as_value(shape):
    """A shape as a vector of int32, one element for each dimension."""
    return as_array(np.array(tuple(shape), dtype=np.int32))
