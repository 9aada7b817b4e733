"""Redistribution: from spec A to spec B of one value by the cheapest sequence of collectives.

What a device must receive at least is known (ir/ops/communication/retiling.py), and reached: by
moves with a name where there are such (shortest.py), else by one exchange of kind `retile`. Pending
sums are finished on the way, where that costs least:

    reduce_scatter  a pending sum is finished, onto a dimension                 L (n-1)/n
    psum            a pending sum is finished                                   2 L (n-1)/n
    place           a whole value becomes a pending sum (zeros elsewhere)       free

with L the local elements before the move and n the devices of a group; the figures are elements
received per device. Plans are made of the axes that differ: neither the plan nor the time that it
takes grows with the number of devices. No intermediate block is larger than the larger of the two
ends wherever such a path exists. After "Memory-efficient array redistribution" (arXiv:2112.01075).
"""
from __future__ import annotations

import contextlib
import heapq
import itertools
import math
from collections.abc import Iterator

from ...ir.mesh import AbstractMesh
from ...ir.ops.communication.retiling import disjoint_axes, received
from ...ir.support.caches import cached
from ...ir.support.immutable import immutable, replace
from ...ir.types import Entries, Shape
from .between_tilings import retiled
from .effects import Move, effect, local_shape, tile_count
from .joint_axes import Joined, rows_of

Pending = frozenset[str]


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


# Of a value that is brought from one layout to another: what its dimensions must be multiples of,
# into how many parts it is cut in the end, and into how many for what stays (0: nothing does).
Share = tuple[tuple[int, ...], int, int]


def share_received(mesh: AbstractMesh, source: Entries, target: Entries) -> Share | None:
    """What a plan between two layouts receives of a value of any size, without looking for it.

    Nothing is pending; plans reach this bound, but for parts of axes without common parts. None
    where parts of axes, or axes of one device, have to be looked at one by one.
    """
    units: tuple[int, ...] = ()
    parts = common = 1
    for have, want in zip(source, target):  # noqa: B905 (speed)
        tiles = tile_count(mesh, have) if have else 1
        if have == want:
            units += (tiles,)
            parts *= tiles
            common *= tiles
            continue
        if have and want:
            size = mesh.axis_size
            for a, b in zip(have, want):  # noqa: B905 (speed)
                if a != b:
                    if ":" in a or ":" in b or size(a) == 1 or size(b) == 1:
                        return None
                    common = 0              # an axis meets another one: some keep nothing
        wanted = tile_count(mesh, want) if want else 1
        parts *= wanted
        more = tiles if tiles > wanted else wanted
        common *= more
        units += (math.lcm(tiles, wanted) if more % tiles or more % wanted else more,)
    return units, parts, common


@cached(4096, "steps from one sharding to another")
def _plan(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries,
          source_pending: Pending, target_pending: Pending) -> Plan:
    moves = _at_once(mesh, source, target, source_pending, target_pending)
    if moves is None and source_pending != target_pending:
        rows = _rows(mesh, source, target, source_pending, target_pending)
        if rows:
            joint = Joined(mesh, rows)
            found = _plan(joint.mesh, shape, *itertools.chain.from_iterable(zip(
                joint.joined(source, source_pending), joint.joined(target, target_pending),
                strict=True)))
            with contextlib.suppress(ValueError):       # a part of a row that its axes do not have
                return replace(found, moves=tuple([_spelled(move, joint) for move in found.moves]))
    shape = _divided(mesh, shape, source, target)
    if moves is not None:
        pass
    elif source_pending == target_pending:
        moves = retiled(mesh, shape, source, target)
    else:
        moves = _finished(mesh, shape, source, target, source_pending - target_pending,
                          target_pending - source_pending)
    local = local_shape(mesh, shape, source)
    bound = _bound(mesh, shape, source, target)
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
    return Plan(tuple(moves), math.ceil(total - 1e-6), exchanges, peak, largest, bound)


def _at_once(mesh: AbstractMesh, source: Entries, target: Entries, source_pending: Pending,
             target_pending: Pending) -> list[Move] | None:
    """The one move that does it, where it is plain to see that one does; None elsewhere."""
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
            alone = len(more) == 1 and finish == {*more}
            return [Move("reduce_scatter", more, d)] if alone else None
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
    """Axes that nothing is gained by treating one by one."""
    lists = {axes for axes in (*source, *target) if axes}
    sums = [source_pending - target_pending, target_pending - source_pending]
    lists.update([mesh.sort_axes(away) for pending in sums
                  if (away := pending.difference(*lists))])
    return rows_of(mesh, lists, sums)


def _spelled(move: Move, joint: Joined) -> Move:
    """A move by the names that axes have by themselves."""
    return replace(move, axes=joint.spelled(move.axes),
                   source=tuple(map(joint.spelled, move.source)),
                   target=tuple(map(joint.spelled, move.target)))


def _divided(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries) -> Shape:
    """The shape with dimensions rounded up to what both layouts divide."""
    out = []
    for n, a, b in zip(shape, source, target, strict=True):
        unit = math.lcm(tile_count(mesh, a), tile_count(mesh, b))
        out.append(-(-n // unit) * unit)
    return tuple(out)


def _bound(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries) -> int:
    share = share_received(mesh, source, target)
    if share is not None:
        _, parts, common = share
        whole = math.prod(shape)
        return whole // parts - (whole // common if common else 0)
    try:
        a, b = disjoint_axes([source, target], mesh.shape)
    except ValueError:                          # parts of an axis that have no common parts
        return math.prod(local_shape(mesh, shape, target))
    size = {x: mesh.axis_size(x) for t in (a, b) for e in t for x in e}
    return received(local_shape(mesh, shape, source), a, b, size)


# -- pending sums ---------------------------------------------------------------------------------

def _finished(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries, finish: Pending,
              start: Pending) -> list[Move]:
    """Dijkstra over (layout, pending axes); costs are (elements, exchanges, steps).

    Once nothing is left to finish, the rest is a change of tilings, whose cost is its bound.
    """
    for capped in (True, False):
        found = _search(mesh, shape, source, target, finish, start, capped)
        if found is not None:
            break
    else:
        raise AssertionError(f"no path from {source} to {target}")
    moves: list[Move] = []
    at = source
    for move, after in found:
        if move.kind == "retile":
            moves += retiled(mesh, shape, at, after)
        else:
            last = moves[-1] if moves else None
            if (last and move.kind in ("all_slice", "reduce_scatter")
                    and (last.kind, last.dim) == (move.kind, move.dim)):
                moves[-1] = Move(move.kind, last.axes + move.axes, move.dim)
            else:
                moves.append(move)
        at = after
    return moves


def _search(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries, finish: Pending,
            start: Pending, capped: bool) -> list[tuple[Move, Entries]] | None:
    def block(entries: Entries) -> int:
        return math.prod(local_shape(mesh, shape, entries))

    cap = max(block(source), block(target)) if capped else math.inf
    first, goal = (source, finish), (target, start)
    ticket = itertools.count()      # equal costs: first come, first served
    queue: list[tuple] = [((0, 0, 0), next(ticket), first)]
    best: dict[tuple, tuple] = {first: (0, 0, 0)}
    came: dict[tuple, tuple] = {}
    done: set[tuple] = set()
    while queue:
        cost, _, state = heapq.heappop(queue)
        if state in done:
            continue
        if state == goal:
            steps = []
            while state != first:
                previous, move = came[state]
                steps.append((move, state[0]))
                state = previous
            return steps[::-1]
        done.add(state)
        for move, entries, pending in _moves(mesh, shape, state, source, target, finish, start):
            if block(entries) > cap:
                continue
            if move.kind == "retile":
                moved: float = _bound(mesh, shape, state[0], entries)
            else:
                moved = effect(mesh, local_shape(mesh, shape, state[0]), move)[1]
            reached = (entries, pending)
            new = (cost[0] + moved, cost[1] + (moved > 0), cost[2] + 1)
            if reached not in done and new < best.get(reached, (math.inf,)):
                best[reached], came[reached] = new, (state, move)
                heapq.heappush(queue, (new, next(ticket), reached))
    return None


def _moves(mesh: AbstractMesh, shape: Shape, state: tuple[Entries, Pending], source: Entries,
           target: Entries, finish: Pending, start: Pending
           ) -> Iterator[tuple[Move, Entries, Pending]]:
    """The moves from a state, with the state that each leads to."""
    spec, pending = state
    used = pending.union(*spec)
    tiles = [tile_count(mesh, axes) for axes in spec]
    differ = [d for d, (a, b) in enumerate(zip(source, target, strict=True)) if a != b]
    spatial = mesh.sort_axes({a for d in differ for a in (*source[d], *target[d])})
    wanting = differ or list(range(len(shape)))

    def changed(d: int, axes: tuple[str, ...], base: Entries = spec) -> Entries:
        return (*base[:d], axes, *base[d + 1:])

    def fits(d: int, n: int) -> bool:
        return shape[d] % (tiles[d] * n) == 0

    for a in spatial:
        if a not in used:
            for d in differ:
                if fits(d, mesh.axis_size(a)):
                    yield Move("all_slice", (a,), d), changed(d, (*spec[d], a)), pending
    for d in differ:
        for k in range(1, len(spec[d]) + 1):
            axes, shorter = spec[d][-k:], changed(d, spec[d][:-k])
            if not set(axes) <= set(spatial):
                continue
            yield Move("all_gather", axes, d), shorter, pending
            for to in differ:
                if to != d and fits(to, tile_count(mesh, axes)):
                    yield (Move("all_to_all", axes, d, to), changed(to, spec[to] + axes, shorter),
                           pending)
    unfinished = mesh.sort_axes(pending & finish)
    for a in unfinished:
        for d in wanting:
            if fits(d, mesh.axis_size(a)):
                yield (Move("reduce_scatter", (a,), d), changed(d, (*spec[d], a)), pending - {a})
    groups = [unfinished] if unfinished else []
    groups += [(a,) for a in unfinished] if len(unfinished) > 1 else []
    for axes in groups:
        yield Move("psum", axes), spec, pending - set(axes)
    for a in mesh.sort_axes(start - pending):
        if a not in used:
            yield Move("place", (a,)), spec, pending | {a}
        for d in range(len(spec)):
            if spec[d] and spec[d][-1] == a:
                yield Move("place", (a,), d), changed(d, spec[d][:-1]), pending | {a}
    if not unfinished and spec != target:
        yield Move("retile"), target, pending
