"""Gathers by masked lookup: each device looks up the rows it holds, and the results are summed.

This is how `embedding[tokens]` is partitioned over the vocabulary (ir/ops/indexing/gather.py), and
a dynamic slice of a split dimension likewise. The simulated executor holds all blocks side by side
in one array, where the gather of the blocks costs nothing, so one lookup in the whole array
replaces the lookups of all devices.
"""
from __future__ import annotations

import math

from ...ir.ops.communication.collective import all_gather_invariant_p
from ...ir.ops.elementwise.arithmetic import add_p
from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.gather_numbers import GatherScatterMode
from ...ir.ops.indexing.gather import gather_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.program import Atom, Literal, Program
from ...ir.rewriting.inside import inside
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites

_LOOKUP = """
    places = clamp 0 wanted last
    device = axis_index {axis_name}
    first = mul device rows
    offset = broadcast_in_dim first
    here = sub places offset
    bounded = clamp 0 here highest
    inside = eq here bounded
    mine = squeeze inside
    mask = broadcast_in_dim mine
    found = gather table here {dimension_numbers, slice_sizes}
    nothing = broadcast_in_dim 0
    owned = select_n mask nothing found"""


_SLICE = """
    start = clamp 0 wanted last
    device = axis_index {axis_name}
    first = mul device rows
    shift = sub first start
    offset = broadcast_in_dim shift
    steps = iota
    here = sub steps offset
    bounded = clamp 0 here highest
    inside = eq here bounded
    places = broadcast_in_dim bounded {shape, broadcast_dimensions}
    found = gather table places {dimension_numbers, slice_sizes}
    mask = broadcast_in_dim inside
    nothing = broadcast_in_dim 0
    owned = select_n mask nothing found"""


def _is_lookup(m: Match, value: Atom, most: int = 1) -> bool:
    """Is each place in the rows of exactly one of the devices that are summed over?

    value: what the places are computed from; it must be the same on these devices. most: how many
    consecutive rows are read, up to place `m.last`.
    """
    numbers, axes = m.dimension_numbers, set(m.axes)
    if len(numbers.start_index_map) != 1 or set(m.axis_name) != axes:
        return False
    (d,) = numbers.start_index_map
    rows = m.table.aval.shape[d]
    return m.slice_sizes[d] == 1 and _is(m.rows, rows) and _is(m.highest, rows - 1) and (
        isinstance(m.last, Literal) and m.last.val + most <= rows * _count(m)
        and axes.isdisjoint(value.aval.varying))


def _is(atom: Atom, number: int) -> bool:
    return isinstance(atom, Literal) and bool(atom.val == number)


def _is_slice(m: Match) -> bool:
    steps = m.steps.aval
    return steps.ndim == 1 and _is_lookup(m, m.start, steps.size)


def _count(m: Match) -> int:
    return math.prod([m.mesh.axis_size(a) for a in m.axis_name])


def _from_whole(m: Match, places: Atom | None = None) -> Atom:
    (d,) = m.dimension_numbers.start_index_map
    whole = m.emit(all_gather_invariant_p, m.table, all_gather_dimension=d, axis_name=m.axis_name,
                   axis_size=_count(m), tiled=True)
    lookup = m.maker(m.found)
    assert lookup is not None
    return m.emit(gather_p, whole, places or m.places, **lookup.params)


def _filled_from_whole(m: Match) -> Atom | None:
    found = _from_whole(m)
    return m.emit(select_n_p, m.outside, found, m.full(m.value, found.aval.shape))


def _fills(m: Match) -> bool:
    """Are the filled rows those whose places are not in the array?"""
    n, shape = m.numbers, m.eqn.outvars[0].aval.shape
    places = tuple([d for d in range(len(shape)) if d not in n.offset_dims])
    if len(n.start_index_map) != 1 or m.dims != places or not isinstance(m.value, Literal):
        return False
    (d,) = n.start_index_map
    return _is(m.last, m.table.aval.shape[d] - m.slice_sizes[d])


def _filling(m: Match) -> Atom:
    lookup = m.maker(m.found)
    assert lookup is not None
    return m.emit(gather_p, m.table, m.wanted, **{
        **lookup.params, "mode": GatherScatterMode.FILL_OR_DROP, "fill_value": m.value.val})


def _slice_of_whole(m: Match) -> Atom:
    at = m.full(m.start, m.steps.aval.shape)
    return _from_whole(m, m.emit(
        broadcast_in_dim_p, m.emit(add_p, m.steps, at), shape=m.shape,
        broadcast_dimensions=m.broadcast_dimensions, sharding=None))


MASKED_GATHERS = Rewrites(
    Rewrite("masked-gather", f"""{_LOOKUP}
        total = psum_invariant owned {{axes}}
        """, _from_whole, where=lambda m: _is_lookup(m, m.places),
            why="one gather from the whole array instead of one on each device"),
    Rewrite("filled-masked-gather", f"""{_LOOKUP}
        is_first = eq device 0
        once = select_n is_first 0 value
        fill = broadcast_in_dim once
        filled = select_n outside owned fill
        total = psum_invariant filled {{axes}}
        """, _filled_from_whole, where=lambda m: (
            _is_lookup(m, m.places) and set(m.axes).isdisjoint(m.outside.aval.varying)),
            why="the same, for a gather that fills what lies outside"),
    Rewrite("masked-slice", f"""{_SLICE}
        total = psum_invariant owned {{axes}}
        """, _slice_of_whole, where=_is_slice,
            why="one slice of the whole array instead of one on each device"))

FILLING_GATHERS = Rewrites(Rewrite("filling-gather", """
    places = clamp 0 wanted last
    found = gather table places {dimension_numbers=numbers, slice_sizes}
    low = broadcast_in_dim 0
    below = lt wanted low
    high = broadcast_in_dim last
    above = gt wanted high
    beyond = or below above
    listed = squeeze beyond
    outside = broadcast_in_dim listed {broadcast_dimensions=dims}
    fill = broadcast_in_dim value
    filled = select_n outside found fill
    """, _filling, where=_fills,
    why="only the rows that lie outside are written, not all chosen between"))


def gather_from_whole(program: Program) -> Program:
    """The program after these rewrites, in loops and branches too: what bounds a slice in a scan
    may be computed before the scan later on (induction.py).
    """
    return inside(FILLING_GATHERS(MASKED_GATHERS(program)), gather_from_whole)
