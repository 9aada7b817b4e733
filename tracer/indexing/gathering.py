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


@immutable
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
        if any(isinstance(a, Array) and any(a.aval.entries) for a in arrays):
            arrays = broadcast_together(*arrays)     # each keeps its own axes if shapes agree
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

    def slice_entry(at: int, dim: int) -> None:
        """Dimension `at` of x[index] is a slice of dimension `dim` of x, split as that is."""
        own = dim - len([d for d in operand_new if d < dim])
        if aval.entries and aval.entries[own]:
            entries[at] = aval.entries[own]

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
            slice_entry(len(slice_shape), operand_dim)
            offset_dims.append(len(slice_shape))
            sizes.append(p.length)
            slice_shape.append(p.length)
        else:
            slice_entry(len(slice_shape), operand_dim)
            extra.append((len(slice_shape), p))
            columns.append((len(extra) - 1, p))
            mapped.append(operand_dim)
            collapsed.append(operand_dim)
            sizes.append(1)
            slice_shape.append(p.length)
        operand_dim += 1
    query_dims = sorted([*range(query_at, query_at + query_rank), *(at for at, _ in extra)])
    query_shape = tuple(slice_shape[d] for d in query_dims)
    mesh = aval.mesh
    first = arrays[0] if arrays else None
    if isinstance(first, Array) and any(first.aval.entries):
        mesh = first.aval.mesh
        entries.update((query_at + d, e) for d, e in enumerate(first.aval.entries) if e)
    if entries:          # a mesh axis may split one dimension of x[index] only
        NamedSharding(mesh, spec_from_entries(
            tuple(entries.get(d, ()) for d in range(len(slice_shape)))))
    vectors = []
    for c in columns:
        if isinstance(c, tuple):
            place = query_dims.index(extra[c[0]][0])
            vectors.append(_spread(_stride_positions(c[1]), (*query_shape, 1), (place,)))
        elif shape_of(c):
            start = query_dims.index(query_at) if query_rank else 0
            dims = tuple(range(start + query_rank - len(shape_of(c)), start + query_rank))
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
    return Gathering(indices, numbers, tuple(sizes), tuple(backward), tuple(new_axes),
                     tuple(slice_shape),
                     tuple(entries.get(d, ()) for d in range(len(slice_shape))), mesh,
                     no_arrays, no_arrays, tuple(operand_new))


def _spread(c: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    return broadcast_in_dim_p.bind(c, shape=shape, broadcast_dimensions=dims, sharding=None)


def _stride_positions(p: Position) -> Any:
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
