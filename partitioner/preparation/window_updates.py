"""Rewrites a static window update as `select(mask, pad(update), x)`.

`u.at[1:-1, 1:-1].set(new)` is a scatter of one window. If a dimension of the window is split, each
of its rows would become a window of its own, and every device would need all of them. Padded to the
size of the whole, the update is split as the whole is, and each device selects between its own
elements of both:

    inside = (rows from 1 to n - 2) and (columns from 1 to m - 2)
    out = select_n inside u pad(new, 1)

The slices from which the update is computed are then padded too, so that they are split in the same
way (uneven.py).
"""
from __future__ import annotations

import numpy as np

from ...ir.meshes.manual_state import NOT_MANUAL
from ...ir.op import OPS, Op
from ...ir.ops.elementwise.bitwise import and_p
from ...ir.ops.elementwise.comparison import ge_p, lt_p
from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.indexing.common import window_dims
from ...ir.ops.indexing.scatter_derivatives import slice_sizes_of
from ...ir.ops.movement.creation import iota_p
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.program import Atom, Literal
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites
from ...ir.types import array_type
from .splitting import may_be_split

INT32 = np.dtype(np.int32)
# How an update meets old elements: the op that combines both, or None to replace them.
BOXES = {"scatter": None, "scatter-add": "add", "scatter-sub": "sub", "scatter-mul": "mul",
         "scatter-min": "min", "scatter-max": "max"}


def known_starts(m: Match, indices: Atom) -> list[int] | None:
    """The start of a window, from an index vector made of constants."""
    eqn = m.maker(indices)
    if eqn is None:
        return None
    if eqn.op is broadcast_in_dim_p and type(eqn.invars[0]) is Literal:
        return [int(eqn.invars[0].val)] * indices.aval.size
    if eqn.op is not concatenate_p:
        return None
    parts = [known_starts(m, a) for a in eqn.invars]
    return None if None in parts else [n for part in parts for n in part]    # type: ignore


def _is_plain(m: Match) -> bool:
    """Is it one window that covers most of an array which Auto axes may split?"""
    base, updates, numbers = m.base.aval, m.updates.aval, m.numbers
    return (may_be_split(m) and not m.mesh.explicit_axes and m.indices.aval.ndim == 1
            and not numbers.operand_batching_dims and 2 * updates.size >= base.size > updates.size
            and base.weak_type == m.eqn.outvars[0].aval.weak_type and base.dtype == updates.dtype
            and isinstance(base.dtype, np.dtype) and base.manual is updates.manual is NOT_MANUAL
            and not base.sharding.spec.unreduced and not updates.sharding.spec.unreduced)


def _selected(m: Match) -> Atom | None:
    shape, n = m.base.aval.shape, m.numbers
    sizes = slice_sizes_of(shape, m.updates.aval.shape, n)
    found = known_starts(m, m.indices)
    windows = window_dims(len(shape), n.inserted_window_dims, ())
    if found is None or n.update_window_dims != tuple(range(len(windows))):
        return None
    starts = [0] * len(shape)
    for d, start in zip(n.scatter_dims_to_operand_dims, found, strict=True):
        starts[d] = start
    if not all([0 <= a <= k - size for a, size, k in zip(starts, sizes, shape, strict=True)]):
        return None
    update = m.updates
    if update.aval.shape != tuple(sizes):
        update = m.emit(broadcast_in_dim_p, update, shape=tuple(sizes), broadcast_dimensions=tuple(
            windows), sharding=None)
    t = m.base.aval
    zero = Literal(t.dtype.type(0), array_type((), t.dtype, update.aval.weak_type))
    padded = m.emit(pad_p, update, zero, padding_config=tuple(
        [(a, k - size - a, 0) for a, size, k in zip(starts, sizes, shape, strict=True)]))
    op = BOXES[m.eqn.op.name]
    new = padded if op is None else m.emit(OPS[op], m.base, padded)
    mask: Atom | None = None
    for d, (a, size, k) in enumerate(zip(starts, sizes, shape, strict=True)):
        if size < k:
            here = m.emit(broadcast_in_dim_p, _between(m, k, a, a + size), shape=shape,
                          broadcast_dimensions=(d,), sharding=None)
            mask = here if mask is None else m.emit(and_p, mask, here)
    assert mask is not None, "the window is the whole"
    return m.emit(select_n_p, mask, m.base, new)


def _between(m: Match, count: int, first: int, end: int) -> Atom:
    """A mask of `count` positions: those from `first` up to `end`."""
    place = m.emit(iota_p, dtype=INT32, shape=(count,), dimension=0, sharding=None)

    def compared(op: Op, bound: int) -> Atom:
        limit = Literal(INT32.type(bound), array_type((), INT32))
        return m.emit(op, place, m.emit(broadcast_in_dim_p, limit, shape=(count,),
                                        broadcast_dimensions=(), sharding=None))
    return m.emit(and_p, compared(ge_p, first), compared(lt_p, end))


CHOOSE_BOXES = Rewrites(Rewrite(
    "box-at-a-known-place",
    f"out = {'|'.join(BOXES)} base indices updates {{dimension_numbers=numbers}}", _selected,
    where=_is_plain, why="the update is split as the array is, and no index is looked at"))
