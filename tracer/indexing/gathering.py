"""Index arrays as one gather: dimension numbers, index matrix, and the shape that it gives."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.elementwise.arithmetic import add_p, mul_p
from ...ir.ops.movement.creation import iota_p
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.shape import broadcast_in_dim_p, rev_p
from ...ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ...ir.spec import spec_from_entries
from ...ir.support.immutable import immutable
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType
from ...ir.values.array import Array
from .. import lax
from ..lax.creation import filled_as
from ..lax.slicing import wrap_negative
from ..operands.broadcasting import broadcast_together
from ..operands.dtype_promotion import convert, dtype_name
from ..operands.rank_promotion import broadcast_shapes, shape_of
from ..operands.scalars import INT32
from .index_forms import Position

Axes = tuple[str, ...]


@immutable
class Gathering:
    """A plain index as a gather: what reads and writes share.

    indices: integer array, index vectors in its last dimension. numbers, slice_sizes: of the
    gather on the operand. reversed_dims: dimensions of the gathered slice in backward order.
    new_axes: where None stands, in the result. slice_shape: shape before new axes.
    slice_entries: mesh axes of that shape: dimensions taken whole keep the operand's.
    mesh: of those axes.
    operand_new: dimensions of size 1 that the operand gets first, for True and False as index.
    """

    indices: Any
    numbers: lax.GatherDimensionNumbers
    slice_sizes: tuple[int, ...]
    reversed_dims: tuple[int, ...]
    new_axes: tuple[int, ...]
    slice_shape: tuple[int, ...]
    slice_entries: tuple[Axes, ...]
    mesh: AbstractMesh
    sorted: bool
    unique: bool
    operand_new: tuple[int, ...] = ()


class _Item(NamedTuple):
    """An item of a plain index. size, axes: of the operand's dimension that it is about."""

    position: Position
    size: int = 1
    axes: Axes = ()


class _Slice:
    """The dimensions of x[index] and of the windows that are gathered for it, as they come about.

    shape, axes: of x[index] before new axes; queries: its dimensions that are of index vectors,
    offsets, backward: of windows, and of those turned round. sizes: of windows, by dimension of the
    operand; mapped: those that the vectors position, collapsed: those that they leave out. columns:
    the components of the vectors, each with the dimensions of x[index] along which it varies; a
    `Position` stands for its rows.
    """

    def __init__(self) -> None:
        self.shape: list[int] = []
        self.axes: list[Axes] = []
        self.queries: list[int] = []
        self.offsets: list[int] = []
        self.backward: list[int] = []
        self.new_axes: list[int] = []
        self.sizes: list[int] = []
        self.mapped: list[int] = []
        self.collapsed: list[int] = []
        self.columns: list[tuple[Any, Sequence[int]]] = []

    def add_queries(self, shape: Sequence[int], axes: Sequence[Axes]) -> None:
        """The dimensions that the index arrays have together come next."""
        self.queries += range(len(self.shape), len(self.shape) + len(shape))
        self.shape += shape
        self.axes += axes

    def add_points(self, column: Any, along: Sequence[int] = ()) -> None:
        """Gather, of the operand's next dimension, one row for each index vector."""
        self.columns.append((column, along))
        self.mapped.append(len(self.sizes))
        self.collapsed.append(len(self.sizes))
        self.sizes.append(1)

    def add_strided(self, item: _Item) -> None:
        """Rows with gaps: a dimension of queries of their own."""
        at = len(self.shape)
        self.add_queries([item.position.length], [item.axes])
        self.add_points(item.position, (at,))

    def add_rows(self, item: _Item) -> None:
        """Rows without gaps, in either direction: a dimension of the window."""
        p, at = item.position, len(self.shape)
        forward = p.step > 0 or p.length <= 1
        if not forward:
            self.backward.append(at)
        if p.length != item.size:
            self.columns.append((np.int32(p.start if forward else p.stop + 1), ()))
            self.mapped.append(len(self.sizes))
        self.offsets.append(at)
        self.sizes.append(p.length)
        self.shape.append(p.length)
        self.axes.append(item.axes)

    def indices(self) -> Any:
        """The index vectors: an array with their components in its last dimension."""
        shape = (*[self.shape[d] for d in self.queries], 1)
        vectors = [_spread(_rows(c) if isinstance(c, Position) else c, shape,
                           tuple([self.queries.index(d) for d in along]))
                   for c, along in self.columns]
        if not vectors:
            return np.zeros((*shape[:-1], 0), np.int32)
        if len(vectors) == 1:
            return vectors[0]
        dtype = max((dtype_name(v) for v in vectors), key=lambda d: d.itemsize)
        return concatenate_p.bind(*(convert(v, dtype) for v in vectors), dimension=len(shape) - 1)


def gathering(plain: Sequence[Position], aval: ArrayType, wrap: bool) -> Gathering:
    """The gather of a plain index of an array of this type.

    All index arrays broadcast; their dimensions come where the first of them stands if they are
    neighbours, else in front.
    """
    items, operand_new = _items(plain, aval)
    arrays, common = _index_arrays(items, wrap)
    mesh, query_axes = aval.mesh, [()] * len(common)
    first = next(iter(arrays.values()), None)
    if isinstance(first, Array) and any(first.aval.entries):
        mesh, query_axes = first.aval.mesh, first.aval.entries
    out, pending = _Slice(), bool(arrays)
    at = 0                                        # of the dimensions of the index arrays
    apart = pending and max(arrays) - min(arrays) + 1 != len(arrays)
    for k, item in enumerate(items):
        if pending and (apart or k in arrays):
            at, pending = len(out.shape), False
            out.add_queries(common, query_axes)
        kind, step = item.position.kind, item.position.step
        if k in arrays:
            rank = len(shape_of(arrays[k]))
            out.add_points(arrays[k], range(at + len(common) - rank, at + len(common)))
        elif kind == "new":
            out.new_axes.append(len(out.shape) + len(out.new_axes))
        elif kind in ("int", "scalar"):
            out.add_points(_index_array(item.position.value, item.size, wrap))
        elif abs(step) == 1 or item.position.length <= 1:
            out.add_rows(item)
        else:
            out.add_strided(item)
    axes = tuple(out.axes)
    if any(axes):        # a mesh axis may split one dimension of x[index] only
        NamedSharding(mesh, spec_from_entries(axes))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(out.offsets), collapsed_slice_dims=tuple(out.collapsed),
        start_index_map=tuple(out.mapped))
    return Gathering(out.indices(), numbers, tuple(out.sizes), tuple(out.backward),
                     tuple(out.new_axes), tuple(out.shape), axes, mesh, not arrays, not arrays,
                     operand_new)


def _items(plain: Sequence[Position], aval: ArrayType) -> tuple[list[_Item], tuple[int, ...]]:
    """The items, True and False among them as arrays; and the dimensions of size one that the
    operand gets first for these."""
    dims = iter(zip(aval.shape, aval.entries or [()] * aval.ndim, strict=True))
    items: list[_Item] = []
    operand_new: list[int] = []
    for p in plain:
        if p.kind == "new":
            items.append(_Item(p))
        elif p.kind == "mask":
            operand_new.append(len([i for i in items if i.position.kind != "new"]))
            positions = np.zeros((1 if p.value else 0,), np.int32)
            items.append(_Item(Position("array", positions)))
        else:
            items.append(_Item(p, *next(dims)))
    return items, tuple(operand_new)


def _index_arrays(items: Sequence[_Item], wrap: bool) -> tuple[dict[int, Any], tuple[int, ...]]:
    """The index arrays by their place among the items, and the shape that they have together."""
    kinds = [item.position.kind for item in items]
    if "array" not in kinds:
        return {}, ()
    # Static ints next to arrays are scalars among the index arrays, as in numpy.
    places = [k for k, kind in enumerate(kinds) if kind in ("array", "scalar", "int")]
    arrays = [_index_array(items[k].position.value, items[k].size, wrap) for k in places]
    common = broadcast_shapes(*map(shape_of, arrays))
    if any(isinstance(a, Array) and any(a.aval.entries) for a in arrays):
        arrays = broadcast_together(*arrays)      # each keeps its own axes if shapes agree
    return dict(zip(places, arrays, strict=True)), common


def _spread(c: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    return broadcast_in_dim_p.bind(c, shape=shape, broadcast_dimensions=dims, sharding=None)


def _rows(p: Position) -> Any:
    """start, start + step, ..."""
    places = iota_p.bind(dtype=INT32, shape=(p.length,), dimension=0, sharding=None)
    return add_p.bind(np.int32(p.start), mul_p.bind(np.int32(p.step), places))


def _index_array(i: Any, n: int, wrap: bool) -> Any:
    """An index array as int32 (or wider) counted from the front."""
    if isinstance(i, (int, np.ndarray, np.generic)):
        value = np.asarray(i)
        value = value.astype(np.int32) if value.dtype.itemsize != 4 or value.dtype.kind == "u" \
            else value
        if wrap:
            value = np.where(value < 0, value + n, value).astype(np.int32)
        return value if value.ndim else value[()]
    unsigned = issubdtype(i.dtype, np.unsignedinteger)
    if i.dtype.itemsize < 4:
        i = convert(i, INT32)
    return i if unsigned or not wrap else wrap_negative(i, n)


def gather_at(x: Array, plain: Sequence[Position], indices_are_sorted: bool, unique_indices: bool,
              mode: Any, fill_value: Any, wrap: bool) -> Array:
    """x[index] as a gather, with reversed and new dimensions added after it. plain: the items of
    the index in normal form. wrap: whether negative positions count from the end.
    """
    g = gathering(plain, x.aval, wrap)
    if g.operand_new:
        x = lax.expand_dims(x, g.operand_new)
    if 0 in g.slice_shape:
        sharding = named_sharding_abstract(g.mesh, spec_from_entries(g.slice_entries)) if any(
            g.slice_entries) else None
        zero = convert(0, x.aval.dtype)
        out = lax.full_like(x, zero, shape=tuple(g.slice_shape)) if sharding is None else (
            filled_as(g.slice_shape, zero, sharding))
    else:
        out = lax.gather(x, g.indices, g.numbers, g.slice_sizes,
                         unique_indices=unique_indices or g.unique,
                         indices_are_sorted=indices_are_sorted or g.sorted, mode=mode,
                         fill_value=fill_value)
    if g.reversed_dims:
        out = rev_p.bind(out, dimensions=g.reversed_dims)
    return lax.expand_dims(out, g.new_axes) if g.new_axes else out
