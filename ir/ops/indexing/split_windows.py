"""Windows of gathers and scatters along dimensions that are split.

A device reads or writes the part of a window that lies in its block. A window of several rows along
a split dimension becomes that many queries of one row each, so that each row belongs to one device.
Positions are clamped, or found out of bounds, with respect to the whole operand, before the offset
of the block is subtracted.
"""
from __future__ import annotations

import enum

from ...op import LocalizeContext
from ...program import Atom
from ...support.immutable import immutable
from ...types import Shape
from ..emitting import INT32, Emitting, literal
from ..gather_numbers import GatherDimensionNumbers
from .common import window_dims

Axes = tuple[str, ...]


def split_dims(context: LocalizeContext, n: GatherDimensionNumbers, sizes: Shape
               ) -> dict[int, Axes]:
    """The split dimensions of operand 0 of which windows take a part, with their axes."""
    whole = context.operand_types[0].shape
    return {d: axes for d, size in enumerate(whole)
            if d not in n.operand_batching_dims and (d in n.collapsed_slice_dims
                                                     or sizes[d] != size)
            and (axes := context.axes_of_factor.get(context.rule.operands[0][d][0], ()))}


@immutable
class OwnWindows:
    """Positions relative to this device's block.

    indices: int32 [queries, rows of split windows, vector]; numbers, sizes: as of a gather with
    them, whose result has queries first where `moved` is not empty. is_held, outside: of the shape
    of indices but for a last dimension of one: which of them are in this device's block, which in
    no device's (None where that does not matter). moved: the dimensions of the result (of the
    updates) that are queries now, in order; offsets: those that are still windows.
    """
    indices: Atom
    numbers: GatherDimensionNumbers
    sizes: Shape
    is_held: Atom
    outside: Atom | None
    moved: tuple[int, ...]
    offsets: tuple[int, ...]

    def order(self, rank: int) -> tuple[int, ...]:
        """The dimensions of the result (of the updates) in the order that `numbers` has them in."""
        if not self.moved:
            return tuple(range(rank))
        queries = [d for d in range(rank) if d not in self.offsets and d not in self.moved]
        return (*queries, *self.moved, *self.offsets)


class Outside(enum.Enum):
    """What becomes of windows that are not inside of the operand: they are MOVED there, TOLD from
    those of other blocks, or LEFT to no block."""
    MOVED = 0
    TOLD = 1
    LEFT = 2


def own_windows(out: Emitting, indices: Atom, n: GatherDimensionNumbers, whole_sizes: Shape,
                sizes: Shape, split: dict[int, Axes], outside_are: Outside) -> OwnWindows:
    """The windows of an operand whose dimensions `split` are blocks.

    whole_sizes, sizes: of windows, in the whole operand and in the block.
    """
    context = out.context
    whole, block = context.operand_types[0].shape, context.local_operand_shapes[0]
    windows = window_dims(len(whole), n.collapsed_slice_dims, n.operand_batching_dims)
    places = dict(zip(windows, n.offset_dims, strict=True))
    rows = [d for d in windows if d in split]
    queries = indices.aval.shape[:-1]
    shape = (*queries, *(whole_sizes[d] for d in rows), 1)
    front = (*range(len(queries)), len(shape) - 1)
    addressed = [*n.start_index_map, *(d for d in split if d not in n.start_index_map)]
    columns: list[Atom] = []
    is_held: Atom | None = None
    outside: Atom | None = None
    for c, d in enumerate(addressed):
        if c < len(n.start_index_map):
            column = out.index(out.part(indices, len(queries), c, c + 1), whole[d])
        else:
            column = out.full(0, (*queries, 1), INT32)
        highest = whole[d] - whole_sizes[d]
        # else what is outside of the whole is in no block either
        moves = outside_are is not Outside.LEFT or d not in split or whole_sizes[d] > 1
        if moves and outside_are is not Outside.MOVED:
            off = out.call("or", out.call("lt", column, out.full(0, column.aval.shape, INT32)),
                           out.call("gt", column, out.full(highest, column.aval.shape, INT32)))
            off = out.broadcast(off, shape, front)
            outside = off if outside is None else out.call("or", outside, off)
        if moves:
            column = out.call("clamp", literal(0, INT32), column, literal(highest, INT32))
        column = out.broadcast(column, shape, front)
        if d in rows:
            column = out.call("add", column, out.iota(shape, len(queries) + rows.index(d)))
        if d in split:
            column = out.minus(column, context.block_offset(split[d], block[d]))
            own = out.inside(column, block[d])
            is_held = own if is_held is None else out.call("and", is_held, own)
        columns.append(column)
    last = len(shape) - 1
    local = out.call("concatenate", *columns, dimension=last) if len(columns) > 1 else columns[0]
    assert is_held is not None, "no dimension of the operand is split"
    kept = tuple(places[d] for d in windows if d not in rows)
    count = len(queries) + len(rows)
    offsets = tuple(range(count, count + len(kept))) if rows else n.offset_dims
    numbers = GatherDimensionNumbers(
        offsets, tuple(sorted((*n.collapsed_slice_dims, *rows))), tuple(addressed),
        n.operand_batching_dims, n.start_indices_batching_dims)
    taken = tuple(1 if d in rows else m for d, m in enumerate(sizes))
    return OwnWindows(local, numbers, taken, is_held, outside, tuple(places[d] for d in rows), kept)

