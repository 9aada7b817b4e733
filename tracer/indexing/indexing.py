"""x[index]: from Python's index to slice, dynamic_slice or gather.

An index is first made plain: one item for each dimension or new axis, ellipses spelled out, boolean
masks replaced by positions. Then the cheapest strategy that fits is taken: a static slice (ints and
slices only), a dynamic slice (scalars known when the program runs), else a gather. A concrete array
that is split over several devices takes the gather only, as in JAX: a static slice of it would move
data that the type does not show.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.dtypes import issubdtype
from ...ir.ops.movement.dynamic_slicing import dynamic_slice_p
from ...ir.ops.movement.shape import rev_p, squeeze_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.settings.context import config
from ...ir.support.caches import cached
from ...ir.support.named_tuple import NamedTuple
from ...ir.values.array import Array
from .. import lax
from ..lax.slicing import wrap_negative
from ..operands.dtype_promotion import convert
from ..operands.scalars import INT32
from ..staging.memoized import memoized
from ..staging.tracer import Tracer
from .gathering import gather_at
from .index_forms import Position, plain_index

# -- reading ---------------------------------------------------------------------------------------


def get_item(x: Array, index: Any) -> Array:
    """x[index]."""
    return read(x, index) if type(index) is int else _read_composed(x, index)


def read(x: Array, index: Any, *, indices_are_sorted: bool = False, unique_indices: bool = False,
         mode: Any = None, fill_value: Any = None, wrap_negative_indices: bool = True) -> Array:
    """x[index] with the options of a gather; without any, the cheapest strategy that fits."""
    if mode is None and fill_value is None and wrap_negative_indices:
        sliced = read_slice(x, index)
        if sliced is not None:
            return sliced
    plain = plain_index(index, x.aval.shape)
    if mode in (None, "promise_in_bounds", lax.GatherScatterMode.PROMISE_IN_BOUNDS):
        _check_static(plain, x.aval.shape)
    return gather_at(x, plain, indices_are_sorted, unique_indices, mode, fill_value,
                     wrap_negative_indices)


_read_composed = memoized(lambda x, index: read(x, index))


def read_slice(x: Array, index: Any) -> Array | None:
    """x[index] as a slice or dynamic slice, or None if that is not what it is."""
    fast = _first_dimension(x, index)
    if fast is not None:
        return fast
    if isinstance(x, Tracer):
        key = _plain_key(index)
        plan = None if key is None else _slice_plan(key, x.aval.shape)
        if plan is not None:
            return _apply(x, plan)
    plain = plain_index(index, x.aval.shape)
    kinds = {p.kind for p in plain}
    if kinds <= {"slice", "new"} and all(
            _whole(p, n) for p, n in zip(_sized(plain), x.aval.shape, strict=True)):
        return _trivial(x, plain)
    if _may_slice(x):
        if kinds <= {"int", "slice", "new"} and _in_range(plain, x.aval.shape):
            return _apply(x, _slices(plain, x.aval.shape))
        if kinds <= {"int", "scalar", "slice", "new"} and all(
                p.step == 1 for p in plain if p.kind == "slice"):
            _check_static(plain, x.aval.shape)
            return _dynamic(x, plain)
    return None


def _plain_key(index: Any) -> tuple[Any, ...] | None:
    """An index of ints, slices of ints, None and `...`, hashable; None for any other."""
    items = index if type(index) is tuple else (index,)
    key: list[Any] = []
    for i in items:
        kind = type(i)
        if kind is int or i is None or i is Ellipsis:
            key.append(i)
        elif kind is slice:
            parts = (i.start, i.stop, i.step)
            if any([p is not None and type(p) is not int for p in parts]):
                return None
            key.append(parts)
        else:
            return None
    return tuple(key)


@cached(4096)
def _slice_plan(key: tuple[Any, ...], shape: tuple[int, ...]) -> _Slices | None:
    """How to read a traced array of this shape at an index, see `_plain_key`: None where an int is
    out of range, or nothing is left out. The index of a program's line is the same each time."""
    index = tuple([slice(*i) if type(i) is tuple else i for i in key])
    plain = plain_index(index, shape)
    if not _in_range(plain, shape) or all(p.kind in ("slice", "new") for p in plain) and all(
            _whole(p, n) for p, n in zip(_sized(plain), shape, strict=True)):
        return None
    return _slices(plain, shape)


def _first_dimension(x: Array, index: Any) -> Array | None:
    """x[i] and x[a:b] of a traced array, which are most of all indexing."""
    if type(index) is not int or not isinstance(x, Tracer):
        return None
    shape = x.aval.shape
    if not shape:
        return None
    n = shape[0]
    if not -n <= index < n:
        return None
    at = index + n if index < 0 else index
    zeros = (0,) * (len(shape) - 1)
    part = slice_p.bind(x, start_indices=(at, *zeros), limit_indices=(at + 1, *shape[1:]),
                        strides=None)
    return squeeze_p.bind(part, dimensions=(0,))


def _sized(plain: Sequence[Position]) -> list[Position]:
    return [p for p in plain if p.kind not in ("new", "mask")]


def _whole(p: Position, n: int) -> bool:
    """Does a slice take its whole dimension, in either direction?"""
    return p.length == n and (n <= 1 or abs(p.step) == 1)


def _trivial(x: Array, plain: Sequence[Position]) -> Array:
    """Slices that take everything, and new axes."""
    backward = tuple(d for d, p in enumerate(_sized(plain)) if p.step < 0 and p.length > 1)
    if backward:
        x = rev_p.bind(x, dimensions=backward)
    return _with_new_axes(x, plain)


def _with_new_axes(x: Array, plain: Sequence[Position]) -> Array:
    """x with dimensions of size 1 where the index has None; ints have left none behind."""
    places = _new_axes(plain)
    return lax.expand_dims(x, places) if places else x


def _new_axes(plain: Sequence[Position]) -> list[int]:
    """Where the result has dimensions of size 1 for None in the index."""
    places, at = [], 0
    for p in plain:
        if p.kind == "new":
            places.append(at)
        if p.kind not in ("int", "scalar"):
            at += 1
    return places


def _may_slice(x: Array) -> bool:
    """Are slices allowed, or is x a concrete array on several devices?"""
    if isinstance(x, Tracer):
        return True
    sharding = getattr(x, "sharding", None)
    return sharding is None or getattr(sharding, "num_devices", 1) == 1


def _in_range(plain: Sequence[Position], shape: tuple[int, ...]) -> bool:
    return all(p.kind != "int" or -n <= p.value < n
               for p, n in zip(_sized(plain), shape, strict=True))


def _check_static(plain: Sequence[Position], shape: tuple[int, ...]) -> None:
    """IndexError for ints that are out of range, if `jax_check_static_indices` is on."""
    if not config.jax_check_static_indices:
        return
    for d, (p, n) in enumerate(zip(_sized(plain), shape, strict=True)):
        if p.kind == "int" and not -n <= p.value < n:
            fail(IndexError, f"index {p.value} out of bounds for axis {d} with size {n}",
                 code="static-index", notes=("`jax_check_static_indices` is on",),
                 help=f"an index lies between {-n} and {n - 1}")


class _Slices(NamedTuple):
    """A slice (its bounds; None where it takes all), a reversal, a squeeze, and new axes."""
    bounds: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None] | None
    backward: tuple[int, ...]
    dropped: tuple[int, ...]
    added: tuple[int, ...]


def _slices(plain: Sequence[Position], shape: tuple[int, ...]) -> _Slices:
    """ints and slices: one slice, a reversal, a squeeze."""
    starts, limits, strides, backward, dropped = [], [], [], [], []
    for d, (p, n) in enumerate(zip(_sized(plain), shape, strict=True)):
        if p.kind == "int":
            at = p.value + n if p.value < 0 else p.value
            starts.append(at)
            limits.append(at + 1)
            strides.append(1)
            dropped.append(d)
        elif p.step > 0:
            starts.append(p.start)
            limits.append(max(p.stop, p.start))
            strides.append(p.step)
        else:
            backward.append(d)
            count = p.length
            last = p.start + (count - 1) * p.step if count else 0
            starts.append(last)
            limits.append(p.start + 1 if count else 0)
            strides.append(-p.step)
    bounds = None
    if starts != [0] * len(shape) or tuple(limits) != shape or any(s != 1 for s in strides):
        bounds = (tuple(starts), tuple(limits),
                  None if all(s == 1 for s in strides) else tuple(strides))
    return _Slices(bounds, tuple(backward), tuple(dropped), tuple(_new_axes(plain)))


def _apply(x: Array, plan: _Slices) -> Array:
    if plan.bounds is not None:
        starts, limits, strides = plan.bounds
        x = slice_p.bind(x, start_indices=starts, limit_indices=limits, strides=strides)
    if plan.backward:
        x = rev_p.bind(x, dimensions=plan.backward)
    if plan.dropped:
        x = squeeze_p.bind(x, dimensions=plan.dropped)
    return lax.expand_dims(x, plan.added) if plan.added else x


def _dynamic(x: Array, plain: Sequence[Position]) -> Array:
    """Scalars and contiguous slices: a dynamic slice, which keeps inside of x."""
    shape = x.aval.shape
    starts, sizes, dropped = [], [], []
    for d, (p, n) in enumerate(zip(_sized(plain), shape, strict=True)):
        if p.kind == "slice":
            starts.append(np.int32(p.start))
            sizes.append(p.length)
        else:
            starts.append(_normal_scalar(p.value, n))
            sizes.append(1)
            dropped.append(d)
    for d in dropped:
        if shape[d] == 0:
            fail(IndexError, f"index is out of bounds for axis {d} with size 0, array of shape "
                 f"{shape}", help="take a slice, which may be empty")
    out = dynamic_slice_p.bind(x, *starts, slice_sizes=tuple(sizes))
    out = squeeze_p.bind(out, dimensions=tuple(dropped))
    return _with_new_axes(out, plain)


def _normal_scalar(i: Any, n: int) -> Any:
    """A scalar index as int32 counted from the front."""
    if isinstance(i, (int, np.ndarray, np.generic)):
        i = int(i)
        return np.int32(i + n if i < 0 else i)
    dtype = i.dtype
    if issubdtype(dtype, np.unsignedinteger):
        return convert(i, INT32)
    return wrap_negative(convert(i, INT32) if dtype.itemsize < 4 else i, n)
