"""Redistribution: from spec A to spec B of one value by the cheapest sequence of collectives.

What a device must receive at least is known (ir/ops/communication/retiling.py), and reached: by
moves with a name where there are such (shortest.py), else by one exchange of kind `retile`. Pending
sums are finished on the way, where that costs least (partial_sums.py). Plans are made of the axes
that differ: neither the plan nor the time that it takes grows with the number of devices. No
intermediate block is larger than the larger of the two ends wherever such a path exists. After
"Memory-efficient array redistribution" (arXiv:2112.01075).
"""
from __future__ import annotations

import contextlib
import itertools
import math

from ...ir.meshes.mesh import AbstractMesh
from ...ir.support.caches import cached
from ...ir.support.immutable import immutable, replace
from ...ir.types import Entries, Shape
from .between_tilings import bound, retiled
from .effects import Move, effect, local_shape, tile_count
from .joint_axes import JointAxes, rows_of
from .partial_sums import Pending, finished


@immutable
class Plan:
    """Moves in order, with their figures for one device, in elements.

    received: by the busiest device. exchanges: moves that receive something. peak: most elements
    held at once (the blocks before and after a move, and what is under way). largest: the largest
    block. bound: what any way must move, where nothing is pending.
    """
    moves: tuple[Move, ...]
    received: int
    exchanges: int
    peak: int
    largest: int
    bound: int


EMPTY = Plan((), 0, 0, 0, 0, 0)


def plan(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries,
         source_pending: Pending = frozenset(), target_pending: Pending = frozenset()) -> Plan:
    """The cheapest way from one layout of a value of global `shape` to another.

    Every axis must divide its dimension in both layouts. An axis pending on both sides stays so.
    """
    if source == target and source_pending == target_pending:
        return EMPTY
    return _plan(mesh, shape, source, target, source_pending, target_pending)


@cached(4096, "steps from one sharding to another")
def _plan(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries,
          source_pending: Pending, target_pending: Pending) -> Plan:
    """The moves from one sharding to another, with what they cost and hold. Where no single move
    does it, axes that always move together are first joined into one, so that fewer plans are
    searched.
    """
    moves = _in_one_move(mesh, source, target, source_pending, target_pending)
    if moves is None and source_pending != target_pending:
        rows = _rows(mesh, source, target, source_pending, target_pending)
        if rows:
            joint = JointAxes(mesh, rows)
            found = _plan(joint.mesh, shape, *itertools.chain.from_iterable(zip(
                joint.in_joint_axes(source, source_pending),
                joint.in_joint_axes(target, target_pending), strict=True)))
            with contextlib.suppress(ValueError):       # a part of a joint axis but not of its axes
                return replace(found, moves=tuple([_spelled(move, joint) for move in found.moves]))
    shape = _divided(mesh, shape, source, target)
    if moves is not None:
        pass
    elif source_pending == target_pending:
        moves = retiled(mesh, shape, source, target)
    else:
        moves = finished(mesh, shape, source, target, source_pending - target_pending,
                         target_pending - source_pending)
    local = local_shape(mesh, shape, source)
    total = exchanges = 0
    peak = largest = math.prod(local)
    for move in moves:
        after, cost, scratch = effect(mesh, local, move)
        before, block = math.prod(local), math.prod(after)
        total += cost
        exchanges += cost > 0
        if move.kind != "view":
            peak = max(peak, before + block + scratch)
        largest = max(largest, block)
        local = after
    return Plan(tuple(moves), math.ceil(total - 1e-6), exchanges, peak, largest,
                bound(mesh, shape, source, target))


def _in_one_move(mesh: AbstractMesh, source: Entries, target: Entries, source_pending: Pending,
                 target_pending: Pending) -> list[Move] | None:
    """The single move that does it, where that is plain; else None."""
    differ = [d for d, (a, b) in enumerate(zip(source, target, strict=True)) if a != b]
    finish = source_pending - target_pending
    axes = mesh.sort_axes(finish.union(*[source[d] + target[d] for d in differ]))
    shape = mesh.shape
    if target_pending - source_pending or not all([a in shape and shape[a] > 1 for a in axes]):
        return None
    if not differ:
        return [Move("psum", axes)]
    if len(differ) == 1:
        (d,) = differ
        have, want = source[d], target[d]
        more, less = want[len(have):], have[len(want):]
        if want == have + more and more:
            if not finish:
                return [Move("all_slice", more, d)]
            is_single = len(more) == 1 and finish == {*more}
            return [Move("reduce_scatter", more, d)] if is_single else None
        if have == want + less and not finish:
            return [Move("all_gather", less, d)]
    elif len(differ) == 2 and not finish:
        for d, to in (differ, differ[::-1]):
            moved = source[d][len(target[d]):]
            if moved and source[d] == target[d] + moved and target[to] == source[to] + moved:
                return [Move("all_to_all", moved, d, to)]
    return None


def _rows(mesh: AbstractMesh, source: Entries, target: Entries, source_pending: Pending,
          target_pending: Pending) -> tuple[tuple[str, ...], ...]:
    """Rows of axes that are interchangeable."""
    lists = {axes for axes in (*source, *target) if axes}
    sums = [source_pending - target_pending, target_pending - source_pending]
    lists.update([mesh.sort_axes(away) for pending in sums
                  if (away := pending.difference(*lists))])
    return rows_of(mesh, lists, sums)


def _spelled(move: Move, joint: JointAxes) -> Move:
    """A move by the original names of axes."""
    return move._replace(axes=joint.spelled(move.axes),
                         source=tuple(map(joint.spelled, move.source)),
                         target=tuple(map(joint.spelled, move.target)))


def _divided(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries) -> Shape:
    """The shape with dimensions rounded up to what both layouts divide."""
    out = []
    for n, a, b in zip(shape, source, target, strict=True):
        unit = math.lcm(tile_count(mesh, a), tile_count(mesh, b))
        out.append(-(-n // unit) * unit)
    return tuple(out)
