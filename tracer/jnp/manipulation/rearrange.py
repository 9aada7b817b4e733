"""Repeating and moving elements: tile, repeat, roll, flip, insert, delete, resize."""
from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ....ir.diagnostics.diagnostic import fail
from ....ir.diagnostics.errors import ConcretizationTypeError
from ....ir.dtypes import issubdtype
from ....ir.ops.derivatives import slice_along
from ....ir.ops.elementwise.arithmetic import add_p, sub_p
from ....ir.ops.elementwise.comparison import lt_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.ops.movement.reshape import reshape_p
from ....ir.ops.movement.shape import broadcast_in_dim_p
from ....ir.ops.movement.slicing import slice_p
from ....ir.ops.reductions.sorting import sort_p
from ....ir.values.array import Array
from ....ir.values.typeof import typeof
from ... import lax, sharding_notes
from ...lax.slicing import held
from ...operands.broadcasting import incompatible, to_type
from ...operands.dtype_promotion import check_arraylike, convert, dtype_name
from ...operands.rank_promotion import shape_of
from ...operands.scalars import BOOL
from ...operands.shape_arguments import canonical_axes, canonical_axis, static_shape
from ...shardings.auto_mode import in_auto_mode
from ...shardings.out_sharding import output_sharding
from ...staging.constants import as_array, concrete_value
from ...staging.memoized import memoized
from ...staging.tracer import Tracer
from ..creation.filled import zeros
from ..creation.ranges import arange
from ..elementwise.clipping import clip
from ..elementwise.division import remainder
from ..indexing.searching import take_rows
from ..indexing.sorting import argsort
from ..reductions.cumulative import cumsum
from .joining import concatenate
from .shaping import moveaxis, ravel, reshape

__all__ = [
    "delete", "flip", "fliplr", "flipud", "insert", "repeat", "resize", "roll", "rot90", "tile",
    "trim_zeros",
]


@memoized
def tile(A, reps):
    """`A` repeated `reps[i]` times along dimension i; dimensions are added in front as needed.

    Sharding
      Auto: a split dimension that is repeated is gathered; the others stay split.
      Explicit: a dimension that is repeated must be whole, else ShardingTypeError; `reshard` first.
      Manual: repeats each device's block.

    >>> jnp.tile(jnp.array([1, 2]), (2, 2))
    Array([[1, 2, 1, 2],
           [1, 2, 1, 2]], dtype=int32)
    """
    check_arraylike("tile", A)
    a = as_array(A)
    counts = (operator.index(reps),) if hasattr(reps, "__index__") and not np.ndim(reps) else tuple(
        operator.index(r) for r in reps)
    counts = (1,) * (a.ndim - len(counts)) + counts
    if a.ndim < len(counts):
        a = lax.expand_dims(a, tuple(range(len(counts) - a.ndim)))
    return lax.tile(a, counts)


def repeat(a, repeats, axis=None, *, total_repeat_length=None, out_sharding=None):
    """Each element of `a`, or each slice along `axis`, repeated.

    repeats: how often, or for each slice how often. axis: None flattens `a` first.
    total_repeat_length: the size of the result, needed where `repeats` is traced; the last slice
    fills up, or the result is cut.

    Sharding
      Auto: each device repeats its own slices, if `repeats` is a number.
      Explicit: a split dimension needs an `out_sharding`, else ValueError; the others stay split.
      Manual: repeats the slices of each device's block.

    >>> jnp.repeat(jnp.array([1, 2]), 2), jnp.repeat(jnp.array([1, 2]), jnp.array([1, 3]))
    (Array([1, 1, 2, 2], dtype=int32), Array([1, 2, 2, 2], dtype=int32))
    """
    check_arraylike("repeat", a)
    x = as_array(a)
    aval = typeof(x)
    if axis is None:
        x, axis = lax.reshape(x, (x.size,), out_sharding=_whole(x, out_sharding)), 0
        aval = typeof(x)
    if out_sharding is None and any(aval.entries) and aval.entries[canonical_axis(axis, x.ndim)]:
        fail(ValueError, "Please pass sharding to `jnp.repeat` via `out_sharding` parameter.",
             code="sharded-repeat", label=f"this is {aval.str_short(True)}",
             help="say how the result is split, with `out_sharding`")
    axis = canonical_axis(axis, x.ndim)
    sharding = output_sharding(out_sharding, "repeat", x.ndim)
    if sharding is None and any(aval.entries) and total_repeat_length is None:
        sharding = aval.sharding
    count = _one_count(repeats)
    if total_repeat_length is None:
        if count is not None:
            return in_auto_mode(lambda x: _repeat_all(x, count, axis), sharding, x)
        return in_auto_mode(lambda x: _repeat_each(x, repeats, axis, None), sharding, x)
    return in_auto_mode(lambda x, n: _repeat_each(x, n, axis, total_repeat_length), sharding, x,
                        as_array(repeats))


def _whole(x: Any, out_sharding: Any) -> Any:
    return None if out_sharding is None else output_sharding(out_sharding, "repeat", 1)


def _one_count(repeats: Any) -> int | None:
    """The number of repetitions, if it is one static number."""
    if isinstance(repeats, Tracer):
        return None
    if isinstance(repeats, Array) or np.ndim(repeats):
        value = np.asarray(repeats)
        return int(value.reshape(())) if value.size == 1 else None
    return operator.index(repeats)


def _repeat_all(x: Array, count: int, axis: int) -> Array:
    shape = x.shape
    dims = tuple(d for d in range(x.ndim + 1) if d != axis + 1)
    wide = static_shape((*shape[:axis + 1], count, *shape[axis + 1:]))
    merged = (*shape[:axis], shape[axis] * count, *shape[axis + 1:])
    x = broadcast_in_dim_p.bind(x, shape=wide, broadcast_dimensions=dims, sharding=None)
    return reshape_p.bind(x, new_sizes=merged, dimensions=None, sharding=None)


def _repeat_each(x: Array, repeats: Any, axis: int, length: int | None) -> Array:
    """Each element as often as `repeats` says: a gather of rows whose numbers are known while
    tracing, or, for a given total length, are computed from prefix sums.
    """
    check_arraylike("repeat", repeats)
    n = x.shape[axis]
    if length is None:
        if isinstance(repeats, Tracer):
            fail(ConcretizationTypeError,
                 "Abstract tracer value encountered where concrete value is expected: traced array "
                 f"with shape {repeats.aval.str_short()}\nWhen jit-compiling jnp.repeat, the total "
                 "number of repeats must be static. To fix this, either specify a static value for "
                 "`repeats`, or pass a static value to `total_repeat_length`.",
                 code="traced-value")
        sizes = np.asarray(repeats)
        if sizes.ndim > 1 or sizes.size not in (1, n):
            fail(ValueError, f"repeats of shape {sizes.shape} do not fit {n} elements along axis "
                 f"{axis}", code="repeats", help="give one count, or one for each element")
        sizes = np.broadcast_to(sizes, (n,))
        return take_rows(x, np.repeat(np.arange(n), sizes).astype(np.int32), axis)
    if not n:
        return x
    counts = held(as_array(repeats), int(np.iinfo(np.int32).max))       # their sums fit
    counts = to_type(counts, (n,)) if counts.shape != (n,) else counts
    # The element that position p repeats: as many runs begin at or before p, less one.
    begins = zeros((int(length),), np.int32).at[cumsum(counts) - counts].add(1)
    return take_rows(x, cumsum(begins) - 1, axis)


# -- moving ----------------------------------------------------------------------------------------

@sharding_notes.moved
@memoized
def roll(a, shift, axis=None):
    """`a` with its elements moved by `shift` places; those that leave come in at the other end.

    shift, axis: ints, or tuples that go together. axis: None rolls the flattened array.

    >>> jnp.roll(jnp.arange(5), 2)
    Array([3, 4, 0, 1, 2], dtype=int32)
    """
    check_arraylike("roll", a)
    x = as_array(a)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = (axis,) if not isinstance(axis, (tuple, list)) else tuple(axis)
    traced = isinstance(shift, Tracer)
    shifts = [shift] if not np.ndim(shift) else [shift[i] for i in range(shape_of(shift)[0])] \
        if traced or isinstance(shift, Array) else list(shift)
    n = max(len(axes), len(shifts)) if axes else 0
    if not axes and len(shifts) <= 1:
        return x
    if len(axes) not in (1, n) or len(shifts) not in (1, n):
        raise ValueError("In roll, shift and axis must broadcast to one dimension, got "
                         f"{len(shifts)} shifts and {len(axes)} axes")
    axes, shifts = axes * (n // len(axes)), shifts * (n // len(shifts))
    for d, s in zip(axes, shifts, strict=True):
        x = _roll(x, s, canonical_axis(d, x.ndim))
    return x


def _roll(x: Array, shift: Any, axis: int) -> Array:
    """Roll along an axis: two slices joined, or, for a traced shift, a slice of the array twice."""
    n = x.shape[axis]
    if n == 0:
        return x
    if isinstance(shift, Tracer):
        offset = remainder(shift, n)
        doubled = lax.concatenate([x, x], axis)
        return lax.dynamic_slice_in_dim(
            doubled, sub_p.bind(convert(n, dtype_name(offset)), offset), n, axis)
    offset = int(shift) % n
    if offset == 0:
        return x
    return lax.concatenate([lax.slice_in_dim(x, n - offset, n, axis=axis),
                            lax.slice_in_dim(x, 0, n - offset, axis=axis)], axis)


@sharding_notes.moved
def flip(m, axis=None):
    """`m` with the order of its elements reversed along `axis`: an int, a tuple, or None for all.

    >>> jnp.flip(jnp.array([[1, 2], [3, 4]]), axis=0)
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    check_arraylike("flip", m)
    n = len(shape_of(m))
    return lax.rev(m, tuple(range(n)) if axis is None else canonical_axes(axis, n))


def fliplr(m):
    """`m` with the order of its columns reversed: `flip` along the second dimension."""
    return flip(m, 1)


def flipud(m):
    """`m` with the order of its rows reversed: `flip` along the first dimension."""
    return flip(m, 0)


@memoized
def rot90(m, k=1, axes=(0, 1)):
    """m turned k times by 90 degrees, from the first of two dimensions towards the second."""
    check_arraylike("rot90", m)
    x = as_array(m)
    if x.ndim < 2:
        raise ValueError(f"rot90 requires its first argument to have ndim at least two, but got "
                         f"first argument of shape {x.shape}, which has ndim {x.ndim}")
    a, b = (canonical_axis(d, x.ndim) for d in axes)
    if a == b:
        raise ValueError("Axes must be different")
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return flip(flip(x, a), b)
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    if k == 1:
        return lax.transpose(flip(x, b), order)
    return flip(lax.transpose(x, order), b)


def resize(a, new_shape):
    """The elements of a, repeated as often as needed, in another shape."""
    check_arraylike("resize", a)
    shape = static_shape(new_shape)
    flat = ravel(a)
    total = math.prod(shape)
    if not flat.size or not total:
        return zeros(shape, flat.dtype)
    times = -(-total // flat.size)
    out = lax.tile(flat, (times,))
    out = slice_p.bind(out, start_indices=(0,), limit_indices=(total,), strides=None)
    return reshape(out, shape)


# -- inserting and deleting ------------------------------------------------------------------------

def delete(arr, obj, axis=None, *, assume_unique_indices=False):
    """arr without the slices at positions `obj` (int, slice, positions or mask) of a dimension."""
    check_arraylike("delete", arr)
    x = ravel(arr) if axis is None else as_array(arr)
    axis = canonical_axis(0 if axis is None else axis, x.ndim)
    n = x.shape[axis]
    if isinstance(obj, slice):
        return _keep(x, np.delete(np.arange(n), obj), axis)
    if not isinstance(obj, Tracer):
        where = np.asarray(obj)
        if where.dtype == BOOL or not where.ndim or not isinstance(obj, Array) or (
                not assume_unique_indices):
            if where.ndim == 0 and where.dtype != BOOL and not -n <= where < n:
                raise IndexError(f"index {where} is out of bounds for axis {axis} with size {n}")
            return _keep(x, np.delete(np.arange(n), where), axis)
    where = ravel(as_array(obj))
    if dtype_name(where) == BOOL:
        return concrete_value(where, "delete")
    if not assume_unique_indices and where.size != 1:
        fail(ConcretizationTypeError,
             "jnp.delete: positions that are traced must be unique; say so with "
             "assume_unique_indices=True", code="traced-value",
             help="say so with assume_unique_indices, or delete by a mask of a fixed number of "
                  "elements")
    # Positions sorted, the i-th kept element lies as many places further as deleted ones precede.
    where = clip(remainder(where, n), 0, n - 1)
    where = sort_p.bind(where, dimension=0, is_stable=True, num_keys=1)[0]
    where = sub_p.bind(where, convert(arange(where.size), where.dtype))
    kept = arange(n - where.size)
    passed = zeros(kept.shape, np.int32).at[lax.max(where, convert(0, where.dtype))].add(1)
    return take_rows(x, add_p.bind(kept, cumsum(passed)), axis)


def _keep(x: Array, kept: np.ndarray, axis: int) -> Array:
    """The slices at ascending static positions: few runs are slices, else a gather."""
    breaks = np.flatnonzero(np.diff(kept) != 1) + 1
    if len(breaks) > 8:
        return take_rows(x, kept.astype(np.int32), axis)
    runs = [run for run in np.split(kept, breaks)]
    parts = []
    for run in runs:
        ends = (int(run[0]), int(run[-1]) + 1) if len(run) else (0, 0)
        parts.append(slice_p.bind(x, **slice_along(x.shape, axis, *ends)))
    return lax.concatenate(parts, axis)


def insert(arr, obj, values, axis=None):
    """arr with values put in front of positions `obj` (int, slice or positions) of a dimension."""
    check_arraylike("insert", arr, values)
    x, new = as_array(arr), as_array(values)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim)
    if any(x.aval.entries):     # as in JAX, which scatters it to a whole array
        incompatible(x, x.shape, None)
    n = x.shape[axis]
    if isinstance(obj, slice):
        where: Any = np.arange(*obj.indices(n))
    else:
        where = obj if isinstance(obj, Tracer) else np.asarray(obj)
        if not isinstance(where, Tracer) and where.dtype == BOOL:
            where = np.flatnonzero(where)
    scalar = not np.ndim(where)
    where = as_array(where)
    if where.ndim > 1:
        raise ValueError("jnp.insert(): obj must be a slice, a one-dimensional array, or a scalar; "
                         f"got {obj}")
    if where.size and not issubdtype(where.dtype, np.integer):
        raise ValueError(f"jnp.insert(): index array must be integer typed; got {obj}")
    if scalar and new.ndim and new.ndim == x.ndim:
        new = moveaxis(new, 0, axis)
    count = max(where.size, 1) if where.ndim else (
        new.shape[axis] if new.ndim == x.ndim and new.ndim else 1)
    if where.size == 1 and new.ndim == x.ndim and new.ndim:
        count = new.shape[axis]
    if where.size == 0 and where.ndim:
        return x
    new = convert(new, x.aval.dtype, x.aval.weak_type)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1:])
    new = to_type(new if new.ndim else new, shape) if new.ndim != 1 or x.ndim == 1 else to_type(
        new, shape)
    where = convert(ravel(where), np.dtype("int32"))
    where = to_type(where, (count,)) if where.size == 1 else where
    where = select_n_p.bind(lt_p.bind(where, np.int32(0)), where,
                            add_p.bind(where, np.int32(n)))
    where = clip(where, 0, n)
    # Old and new elements sorted together by position, new ones in front.
    order = argsort(concatenate([where, arange(n)]), stable=True)
    return take_rows(lax.concatenate([new, x], axis), order, axis)


def trim_zeros(filt, trim="fb", axis=None):
    """filt without leading (f) and trailing (b) zeros along dimensions; needs the values."""
    check_arraylike("trim_zeros", filt)
    x = as_array(filt)
    mask = concrete_value(x, "trim_zeros") != 0
    axes = range(x.ndim) if axis is None else canonical_axes(axis, x.ndim)
    for d in axes:
        places = np.flatnonzero(mask.any(axis=tuple(i for i in range(x.ndim) if i != d)))
        low, high = (places[0], places[-1] + 1) if len(places) else (x.shape[d], x.shape[d])
        start = int(low) if "f" in trim.lower() else 0
        stop = int(high) if "b" in trim.lower() else x.shape[d]
        if not len(places):
            start = stop = 0
        x = lax.slice_in_dim(x, start, stop, axis=d)
    return x
