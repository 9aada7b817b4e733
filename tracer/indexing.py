"""x[index]: from Python's index to slice, dynamic_slice or gather.

An index is first made plain: one item for each dimension or new axis, ellipses spelled out, boolean
masks replaced by positions. Then the cheapest strategy that fits is taken: a static slice (ints and
slices only), a dynamic slice (scalars known when the program runs), else a gather. A concrete array
that is split over several devices takes the gather only, as in JAX: a static slice of it would move
data that the type does not show.
"""
from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.array import Array
from ..ir.diagnostic import fail
from ..ir.dtypes import issubdtype
from ..ir.errors import NonConcreteBooleanIndexError
from ..ir.mesh import AbstractMesh
from ..ir.ops.arithmetic import add_p, mul_p
from ..ir.ops.creation import iota_p
from ..ir.ops.dynamic_slicing import dynamic_slice_p
from ..ir.ops.joining import concatenate_p
from ..ir.ops.shape import broadcast_in_dim_p, rev_p, squeeze_p
from ..ir.ops.slicing import slice_p
from ..ir.types import ArrayType
from . import lax
from .constants import PYTHON_SCALARS, as_array
from .dtype_promotion import broadcast_shapes, convert, dtype_name, shape_of
from .lax.creation import filled_as
from .lax.slicing import wrap_negative
from .tracer import Tracer

_INT32 = np.dtype("int32")


# -- the index, made plain -------------------------------------------------------------------------

@dataclass(frozen=True)
class Position:
    """One item of a plain index. kind: "int" (static), "scalar" or "array" (of integers), "slice"
    (start, stop, step resolved against the size), "new" (None)."""

    kind: str
    value: Any = None
    start: int = 0
    stop: int = 0
    step: int = 1

    @property
    def length(self) -> int:
        """Number of positions that a slice takes."""
        return len(range(self.start, self.stop, self.step))


def plain_index(index: Any, shape: tuple[int, ...]) -> list[Position]:
    """The index of an array of this shape, one item per dimension and per None.

    Raises IndexError for too many items, traced slice bounds and misfitting masks, TypeError for
    lists, strings and floats, NonConcreteBooleanIndexError for traced masks.
    """
    if isinstance(index, list):
        raise TypeError(
            "Using a non-tuple sequence for multidimensional indexing is not allowed; use "
            "`arr[array(seq)]` instead of `arr[seq]`. See "
            "https://github.com/jax-ml/jax/issues/4564 for more information.")
    items = index if isinstance(index, tuple) else (index,)
    checked = [_item(i) for i in items]
    if sum(i is Ellipsis for i in checked) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    expanded: list[Any] = []
    for i in checked:
        expanded.extend(_mask_positions(i))
    used = sum(1 for i in expanded if i is not None and i is not Ellipsis
               and not isinstance(i, _ScalarMask))
    if used > len(shape):
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {used} were "
                         "indexed")
    rest = [slice(None)] * (len(shape) - used)
    if Ellipsis in [i for i in expanded if i is Ellipsis]:
        at = next(k for k, i in enumerate(expanded) if i is Ellipsis)
        expanded[at:at + 1] = rest
    else:
        expanded += rest
    out, dim = [], 0
    for i in expanded:
        if i is None:
            out.append(Position("new"))
            continue
        if isinstance(i, _ScalarMask):
            out.append(Position("mask", i.value))
            continue
        if isinstance(i, _MaskPart):
            if i.size != shape[dim]:
                expected = tuple(shape[i_start(dim, i):][:len(i.mask_shape)])
                raise IndexError("boolean index did not match shape of indexed array in index "
                                 f"{dim}: got {i.mask_shape}, expected {expected}")
            out.append(Position("array", i.positions))
        elif isinstance(i, slice):
            start, stop, step = i.indices(shape[dim])
            out.append(Position("slice", None, start, stop, step))
        elif isinstance(i, int):
            out.append(Position("int", i))
        else:
            out.append(Position("array" if shape_of(i) else "scalar", i))
        dim += 1
    return out


def i_start(dim: int, part: _MaskPart) -> int:
    """The first dimension of the mask that `part` belongs to."""
    return dim - part.place


@dataclass(frozen=True)
class _MaskPart:
    """Positions along one dimension of a boolean mask."""

    positions: np.ndarray
    size: int
    place: int
    mask_shape: tuple[int, ...]


@dataclass(frozen=True)
class _ScalarMask:
    """A True or False as index: a new dimension of size 1 or 0."""

    value: bool


def _item(i: Any) -> Any:
    """One item of an index: int, slice of ints, None, Ellipsis, or an array."""
    if i is None or i is Ellipsis:
        return i
    if isinstance(i, (bool, np.bool_)):
        return _ScalarMask(bool(i))
    if isinstance(i, slice):
        return _static_slice(i)
    if isinstance(i, (int, np.integer)):
        return int(i)
    if isinstance(i, str):
        raise TypeError(f"JAX does not support string indexing; got idx={i!r}")
    if isinstance(i, (tuple, list)):
        if any(isinstance(v, Array) for v in i):
            i = lax.stack([as_array(v) for v in i], 0)
        else:
            i = np.asarray(i) if len(i) else np.zeros((0,), np.int32)
    convert_ = None if isinstance(i, (Array, np.ndarray)) else getattr(i, "__jax_array__", None)
    if convert_ is not None:
        i = convert_()
    if not isinstance(i, (Array, np.ndarray, np.generic)):
        if isinstance(i, PYTHON_SCALARS):
            i = np.asarray(i)
        elif hasattr(i, "__index__"):
            return operator.index(i)
        elif hasattr(i, "__array__"):
            i = np.asarray(i)
        else:
            raise TypeError(f"JAX does not support indexing with {type(i)}; got {i!r}")
    dtype = i.dtype
    if dtype == np.dtype(bool):
        if not i.shape and not isinstance(i, Tracer):
            return _ScalarMask(bool(np.asarray(i)))
        return i
    if not isinstance(dtype, np.dtype) or not issubdtype(dtype, np.integer):
        raise TypeError("Indexer must have integer or boolean type, got indexer with type "
                        f"{dtype}")
    return i


def _static_slice(s: slice) -> slice:
    parts = []
    for p in (s.start, s.stop, s.step):
        if p is None:
            parts.append(None)
            continue
        if isinstance(p, Array) and not isinstance(p, Tracer) and not p.shape:
            p = np.asarray(p)[()]
        if isinstance(p, Tracer) or not hasattr(p, "__index__"):
            fail(IndexError,
                 "Array slice indices must have static start/stop/step to be used with NumPy "
                 "indexing syntax. Slice entries must be static integers. "
                 f"Got {s}.", code="traced-slice",
                 help="try lax.dynamic_slice/dynamic_update_slice: "
                      "`lax.dynamic_slice_in_dim(x, start, size)`")
        parts.append(operator.index(p))
    return slice(*parts)


def _mask_positions(i: Any) -> Sequence[Any]:
    """A boolean array as the positions where it is true, one array per dimension."""
    if not isinstance(i, (Array, np.ndarray, np.generic)) or i.dtype != np.dtype(bool):
        return (i,)
    if isinstance(i, Tracer):
        fail(NonConcreteBooleanIndexError,
             f"Array boolean indices must be concrete; got {i.aval.str_short(True)}",
             code="traced-mask",
             label="how many elements this takes is known only when the program runs",
             help="use `jnp.where(mask, x, 0)`, or `jnp.nonzero(mask, size=n)` for a fixed number")
    mask = np.asarray(i)
    return [_MaskPart(p.astype(np.int32), n, place, mask.shape)
            for place, (p, n) in enumerate(zip(np.nonzero(mask), mask.shape, strict=True))]


# -- reading ---------------------------------------------------------------------------------------

def get_item(x: Array, index: Any) -> Array:
    """x[index]."""
    return read(x, index)


def read(x: Array, index: Any, *, indices_are_sorted: bool = False, unique_indices: bool = False,
         mode: Any = None, fill_value: Any = None, wrap_negative_indices: bool = True) -> Array:
    """x[index] with the options of a gather; without any, the cheapest strategy that fits."""
    if mode is None and fill_value is None and wrap_negative_indices:
        sliced = read_slice(x, index)
        if sliced is not None:
            return sliced
    plain = plain_index(index, x.aval.shape)
    return _gather(x, plain, indices_are_sorted, unique_indices, mode, fill_value,
                   wrap_negative_indices)


def read_slice(x: Array, index: Any) -> Array | None:
    """x[index] as a slice or dynamic slice, or None if that is not what it is."""
    fast = _first_dimension(x, index)
    if fast is not None:
        return fast
    plain = plain_index(index, x.aval.shape)
    kinds = {p.kind for p in plain}
    if kinds <= {"slice", "new"} and all(
            _whole(p, n) for p, n in zip(_sized(plain), x.aval.shape, strict=True)):
        return _trivial(x, plain)
    if _may_slice(x):
        if kinds <= {"int", "slice", "new"} and _in_range(plain, x.aval.shape):
            return _static(x, plain)
        if kinds <= {"int", "scalar", "slice", "new"} and all(
                p.step == 1 for p in plain if p.kind == "slice"):
            return _dynamic(x, plain)
    return None


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
    places, at = [], 0
    for p in plain:
        if p.kind == "new":
            places.append(at)
        if p.kind not in ("int", "scalar"):
            at += 1
    return lax.expand_dims(x, places) if places else x


def _may_slice(x: Array) -> bool:
    """Are slices allowed, or is x a concrete array on several devices?"""
    if isinstance(x, Tracer):
        return True
    sharding = getattr(x, "sharding", None)
    return sharding is None or getattr(sharding, "num_devices", 1) == 1


def _in_range(plain: Sequence[Position], shape: tuple[int, ...]) -> bool:
    return all(p.kind != "int" or -n <= p.value < n
               for p, n in zip(_sized(plain), shape, strict=True))


def _static(x: Array, plain: Sequence[Position]) -> Array:
    """ints and slices: one slice, a reversal, a squeeze."""
    shape = x.aval.shape
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
    if starts != [0] * len(shape) or tuple(limits) != shape or any(s != 1 for s in strides):
        x = slice_p.bind(x, start_indices=tuple(starts), limit_indices=tuple(limits),
                         strides=None if all(s == 1 for s in strides) else tuple(strides))
    if backward:
        x = rev_p.bind(x, dimensions=tuple(backward))
    if dropped:
        x = squeeze_p.bind(x, dimensions=tuple(dropped))
    return _with_new_axes(x, plain)


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
    if any(n == 0 for n in shape):
        fail(IndexError, f"index is out of bounds for axis with size 0, array of shape {shape}")
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
        return convert(i, _INT32)
    return wrap_negative(convert(i, _INT32) if dtype.itemsize < 4 else i, n)


# -- gather ----------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Gathering:
    """A plain index as a gather: what reads and writes share.

    indices: integer array, index vectors in its last dimension. numbers, slice_sizes: of the
    gather on `x_shape`. reversed_dims: dimensions of the gathered slice in backward order.
    new_axes: where None stands, in the result. slice_shape: shape before new axes.
    slice_entries: mesh axes of that shape: dimensions taken whole keep the operand's.
    mesh: of those axes.
    operand_new: dimensions of size 1 that the operand gets first, for True and False as index.
    """

    indices: Any
    numbers: Any
    slice_sizes: tuple[int, ...]
    reversed_dims: tuple[int, ...]
    new_axes: tuple[int, ...]
    slice_shape: tuple[int, ...]
    slice_entries: tuple[tuple[str, ...], ...]
    mesh: AbstractMesh
    sorted: bool
    unique: bool
    operand_new: tuple[int, ...] = ()


def gathering(plain: Sequence[Position], aval: ArrayType, wrap: bool) -> Gathering:
    """The gather of a plain index of an array of this type.

    All index arrays broadcast; their dimensions come where the first of them stands if they are
    neighbours, else in front.
    """
    shape = aval.shape
    entries: dict[int, tuple[str, ...]] = {}
    operand_new: list[int] = []
    items: list[tuple[Position, int]] = []       # position, size of its dimension
    dim = 0
    for p in plain:
        if p.kind == "new":
            items.append((p, 1))
        elif p.kind == "mask":
            operand_new.append(dim + len(operand_new))
            positions = np.zeros((1 if p.value else 0,), np.int32)
            items.append((Position("array", positions), 1))
        else:
            items.append((p, shape[dim]))
            dim += 1
    advanced = [k for k, (p, _) in enumerate(items) if p.kind in ("array", "scalar")]
    if any(items[k][0].kind == "array" for k in advanced):
        # Static ints next to arrays are scalars among the index arrays, as in numpy.
        advanced = [k for k, (p, _) in enumerate(items) if p.kind in ("array", "scalar", "int")]
        spread = advanced[-1] - advanced[0] + 1 != len(advanced)
        arrays = [_index_array(items[k][0].value, items[k][1], wrap) for k in advanced]
        common = broadcast_shapes(*map(shape_of, arrays))
    else:
        advanced, arrays, common, spread = [], [], (), False
    columns: list[Any] = []                       # components of the index vectors
    mapped: list[int] = []                        # operand dimension of each
    collapsed: list[int] = []
    offset_dims: list[int] = []
    sizes: list[int] = []
    slice_shape: list[int] = []
    new_axes: list[int] = []
    backward: list[int] = []
    operand_dim = 0
    query_rank = len(common)
    done = spread and bool(advanced)
    if done:
        slice_shape.extend(common)
    query_at = 0
    by_place = dict(zip(advanced, arrays, strict=True))
    extra: list[tuple[int, Any]] = []             # strided slices: one query dimension each
    for k, (p, n) in enumerate(items):
        if k in by_place:
            if not done:
                query_at = len(slice_shape)
                slice_shape.extend(common)
                done = True
            columns.append(by_place[k])
            mapped.append(operand_dim)
            collapsed.append(operand_dim)
            sizes.append(1)
        elif p.kind == "new":
            new_axes.append(len(slice_shape) + len(new_axes))
            continue
        elif p.kind in ("int", "scalar"):
            columns.append(_index_array(p.value, n, wrap))
            mapped.append(operand_dim)
            collapsed.append(operand_dim)
            sizes.append(1)
        elif abs(p.step) == 1 or p.length <= 1:
            if p.step < 0 and p.length > 1:
                backward.append(len(slice_shape))
            low = p.start if p.step > 0 or p.length <= 1 else p.stop + 1
            if p.length != n:
                columns.append(np.int32(low))
                mapped.append(operand_dim)
            if p.length == n and aval.entries:
                entries[len(slice_shape)] = aval.entries[operand_dim - len(
                    [d for d in operand_new if d < operand_dim])]
            offset_dims.append(len(slice_shape))
            sizes.append(p.length)
            slice_shape.append(p.length)
        else:
            extra.append((len(slice_shape), p))
            columns.append((len(extra) - 1, p))
            mapped.append(operand_dim)
            collapsed.append(operand_dim)
            sizes.append(1)
            slice_shape.append(p.length)
        operand_dim += 1
    query_dims = sorted([*range(query_at, query_at + query_rank), *(at for at, _ in extra)])
    query_shape = tuple(slice_shape[d] for d in query_dims)
    vectors = []
    for c in columns:
        if isinstance(c, tuple):
            place = query_dims.index(extra[c[0]][0])
            vectors.append(_stride_positions(c[1], place, query_shape))
        elif shape_of(c):
            first = query_dims.index(query_at) if query_rank else 0
            dims = tuple(range(first + query_rank - len(shape_of(c)), first + query_rank))
            vectors.append(_spread(c, (*query_shape, 1), dims))
        else:
            vectors.append(_spread(c, (*query_shape, 1), ()))
    if not vectors:
        indices: Any = np.zeros((*query_shape, 0), np.int32)
    elif len(vectors) == 1:
        indices = vectors[0]
    else:
        dtype = max((dtype_name(v) for v in vectors), key=lambda d: d.itemsize)
        indices = concatenate_p.bind(*(convert(v, dtype) for v in vectors),
                                     dimension=len(query_shape))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(offset_dims), collapsed_slice_dims=tuple(collapsed),
        start_index_map=tuple(mapped))
    no_arrays = not advanced
    mesh = aval.mesh
    for a in arrays:
        if isinstance(a, Array):
            mesh = mesh if mesh.axis_names else a.aval.mesh
            for d, axes in enumerate(a.aval.entries, query_rank - a.aval.ndim):
                if axes:
                    entries[query_at + d] = axes
    return Gathering(indices, numbers, tuple(sizes), tuple(backward), tuple(new_axes),
                     tuple(slice_shape),
                     tuple(entries.get(d, ()) for d in range(len(slice_shape))), mesh,
                     no_arrays, no_arrays, tuple(operand_new))


def _spread(c: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    return broadcast_in_dim_p.bind(c, shape=shape, broadcast_dimensions=dims, sharding=None)


def _stride_positions(p: Position, place: int, query_shape: tuple[int, ...]) -> Any:
    """start, start + step, ... along one query dimension, as a column of index vectors."""
    places = iota_p.bind(dtype=_INT32, shape=(p.length,), dimension=0, sharding=None)
    places = add_p.bind(np.int32(p.start), mul_p.bind(np.int32(p.step), places))
    return _spread(places, (*query_shape, 1), (place,))


def _index_array(i: Any, n: int, wrap: bool) -> Any:
    """An index array as int32 (or wider) counted from the front."""
    if isinstance(i, (int, np.ndarray, np.generic)):
        value = np.asarray(i)
        value = value.astype(np.int32) if value.dtype.itemsize != 4 or value.dtype.kind == "u" \
            else value
        if wrap:
            value = np.where(value < 0, value + n, value).astype(np.int32)
        return value if value.ndim else value[()]
    dtype = i.dtype
    if dtype.itemsize < 4:
        i = convert(i, _INT32)
        dtype = _INT32
    if not wrap or issubdtype(dtype, np.unsignedinteger):
        return i
    return wrap_negative(i, n)


def _gather(x: Array, plain: Sequence[Position], indices_are_sorted: bool, unique_indices: bool,
            mode: Any, fill_value: Any, wrap: bool) -> Array:
    g = gathering(plain, x.aval, wrap)
    if g.operand_new:
        x = lax.expand_dims(x, g.operand_new)
    if 0 in g.slice_shape:
        out = filled_as(g.slice_shape, convert(0, x.aval.dtype))
    else:
        out = lax.gather(x, g.indices, g.numbers, g.slice_sizes,
                         unique_indices=unique_indices or g.unique,
                         indices_are_sorted=indices_are_sorted or g.sorted, mode=mode,
                         fill_value=fill_value)
    if g.reversed_dims:
        out = rev_p.bind(out, dimensions=g.reversed_dims)
    return lax.expand_dims(out, g.new_axes) if g.new_axes else out
