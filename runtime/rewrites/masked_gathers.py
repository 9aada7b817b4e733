"""Gathers by masked lookup: each device looks up the rows it holds, and the results are summed.

So `embedding[tokens]` is partitioned over the vocabulary (ir/ops/indexing/gather.py). Here, where
all blocks lie side by side in one array, to gather that array costs nothing, and one lookup in it
takes the time and memory that each device's would take.
"""
from __future__ import annotations

import math

from ...ir.ops.communication.collective import all_gather_invariant_p
from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.indexing.gather import gather_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.program import Atom, Literal
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites

_LOOKUP = """
    places = clamp 0 wanted last
    device = axis_index {axis_name}
    first = mul device rows
    offset = broadcast_in_dim first
    here = sub places offset
    zeros = broadcast_in_dim 0
    low = ge here zeros
    rest = broadcast_in_dim rows
    high = lt here rest
    inside = and low high
    mine = squeeze inside
    mask = broadcast_in_dim mine
    found = gather table here {dimension_numbers, slice_sizes}
    nothing = broadcast_in_dim 0
    owned = select_n mask nothing found"""


def _is_lookup(m: Match) -> bool:
    """Does every place belong to one of the devices that the sum is over?"""
    numbers, axes = m.dimension_numbers, set(m.axes)
    if len(numbers.start_index_map) != 1 or set(m.axis_name) != axes:
        return False
    (d,) = numbers.start_index_map
    rows = m.table.aval.shape[d]
    return m.slice_sizes[d] == 1 and isinstance(m.rows, Literal) and m.rows.val == rows and (
        isinstance(m.last, Literal) and m.last.val < rows * _count(m)
        and axes.isdisjoint(m.places.aval.varying))


def _count(m: Match) -> int:
    return math.prod([m.mesh.axis_size(a) for a in m.axis_name])


def _from_whole(m: Match) -> Atom:
    (d,) = m.dimension_numbers.start_index_map
    whole = m.emit(all_gather_invariant_p, m.table, all_gather_dimension=d, axis_name=m.axis_name,
                   axis_size=_count(m), tiled=True)
    lookup = m.maker(m.found)
    assert lookup is not None
    return m.emit(gather_p, whole, m.places, **lookup.params)


def _filled_from_whole(m: Match) -> Atom | None:
    found = _from_whole(m)
    fill = m.emit(broadcast_in_dim_p, m.value, shape=found.aval.shape, broadcast_dimensions=(),
                  sharding=None)
    return m.emit(select_n_p, m.outside, found, fill)


MASKED_GATHERS = Rewrites(
    Rewrite("masked-gather", f"""{_LOOKUP}
        total = psum_invariant owned {{axes}}
        """, _from_whole, where=_is_lookup,
            why="one gather from the whole array instead of one on each device"),
    Rewrite("filled-masked-gather", f"""{_LOOKUP}
        is_first = eq device 0
        once = select_n is_first 0 value
        fill = broadcast_in_dim once
        filled = select_n outside owned fill
        total = psum_invariant filled {{axes}}
        """, _filled_from_whole, where=lambda m: _is_lookup(m) and set(m.axes).isdisjoint(
            m.outside.aval.varying),
            why="the same, for a gather that fills what lies outside"))
