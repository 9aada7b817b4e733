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
    """The moves where sums are finished or started on the way: those of the search, whose changes
    of tilings are planned by themselves.
    """
    moves: list[Move] = []
    at = source
    for move, after in _Search(mesh, shape, source, target, finish, start).run():
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


STATES = 150                    # that the search for a way to finish sums takes up,
STATES_OF_MANY_AXES = 20        # and where more than five axes differ: each goes on in many ways

_State = tuple[Entries, Pending]                # a layout, and the axes of sums
_Cost = tuple[float, int, int]                  # elements received, exchanges, steps
_Way = tuple[tuple[Move, Entries], ...]         # moves, each with the layout after it


class _Search:
    """A* over (layout, pending axes). Once nothing is left to finish, the rest is a change of
    tilings, whose cost is its bound.

    Some ways are known from the start (`way`). The search looks for a better one, for a limited
    time. No block is larger than the larger of the two ends.
    """

    def __init__(self, mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries,
                 finish: Pending, start: Pending) -> None:
        self.mesh, self.shape, self.source, self.target = mesh, shape, source, target
        self.finish, self.start = finish, start
        self.differ = [d for d, (a, b) in enumerate(zip(source, target, strict=True)) if a != b]
        self.final = math.prod(local_shape(mesh, shape, target))
        self.cap = max(math.prod(local_shape(mesh, shape, source)), self.final)
        self.ahead: dict[_State, _Cost] = {}

    def run(self) -> _Way:
        """The cheapest way that is found."""
        taken = min(map(self.way, ("nowhere", "home", "anywhere")), key=self.cost)
        most = self.cost(taken)
        first, goal = (self.source, self.finish), (self.target, self.start)
        ticket = itertools.count()      # equal costs: first come, first served
        queue: list[tuple] = [(self.left(first), next(ticket), (0, 0, 0), first, ())]
        best: dict[_State, _Cost] = {first: (0, 0, 0)}
        axes = self.finish.union(*self.source, *self.target)
        for _ in range(STATES if len(axes) <= 5 else STATES_OF_MANY_AXES):
            if not queue:
                break
            _, _, cost, state, way = heapq.heappop(queue)
            if cost > best[state]:
                continue
            if state == goal:
                return way
            for move, reached, new in self.steps(state, cost):
                if new < best.get(reached, most):
                    best[reached] = new
                    total = _plus(new, self.left(reached))
                    if total < most:
                        heapq.heappush(queue, (total, next(ticket), new, reached,
                                               (*way, (move, reached[0]))))
        return taken

    def steps(self, state: _State, cost: _Cost) -> Iterator[tuple[Move, _State, _Cost]]:
        """The moves from a state, what each leads to, and what that then costs."""
        for move, entries, pending in _moves(self.mesh, self.shape, state, self.source, self.target,
                                             self.differ, self.finish, self.start):
            more = self.step(state[0], move, entries)
            if more is not None:
                yield move, (entries, pending), _plus(cost, more)

    def step(self, at: Entries, move: Move, after: Entries) -> _Cost | None:
        """What a move costs; None where its block is too large. A change of tilings may take more
        than one exchange, so it counts as two.
        """
        if move.kind == "retile":
            lacks = _bound(self.mesh, self.shape, at, after)
            return lacks, 2 * (lacks > 0), 1
        block, moved, _ = effect(self.mesh, local_shape(self.mesh, self.shape, at), move)
        return (moved, int(moved > 0), 1) if math.prod(block) <= self.cap else None

    def left(self, state: _State) -> _Cost:
        """What the rest of the way costs at least: what a device lacks of its block at the end, or
        as much as that block, if it is part of a sum.
        """
        if state not in self.ahead:
            entries, pending = state
            lacks = _bound(self.mesh, self.shape, entries, self.target)
            if pending & self.finish:
                lacks = max(lacks, self.final)
            self.ahead[state] = lacks, int(lacks > 0), int(state != (self.target, self.start))
        return self.ahead[state]

    def cost(self, way: _Way) -> _Cost:
        found: _Cost = (0, 0, 0)
        at = self.source
        for move, after in way:
            found = _plus(found, self.step(at, move, after) or (math.inf, 0, 0))
            at = after
        return found

    def way(self, cuts: str) -> _Way:
        """The sums are finished, then comes the change of tilings. Before, blocks are cut, and sums
        scattered, along the axes that the target has or sums wait for: "nowhere", on the dimension
        where the target has them ("home"), or else on any that they divide ("anywhere").
        """
        mesh, at, waiting = self.mesh, self.source, self.finish
        steps: list[tuple[Move, Entries]] = []

        def cut(d: int, a: str) -> bool:
            nonlocal at, waiting
            taken = {b.partition(":")[0] for axes in at for b in axes}
            if (a.partition(":")[0] in taken
                    or self.shape[d] % tile_count(mesh, (*at[d], a))):
                return False
            at = (*at[:d], (*at[d], a), *at[d + 1:])
            steps.append((Move("reduce_scatter" if a in waiting else "all_slice", (a,), d), at))
            waiting = waiting - {a}
            return True

        for d in self.differ if cuts != "nowhere" else ():
            own, want = at[d], self.target[d]
            for a in want[len(own):] if want[:len(own)] == own else ():
                if not cut(d, a):
                    break
        if cuts == "anywhere":
            wanted = {a for d in self.differ for a in self.target[d]}
            for a in (*mesh.sort_axes(wanted - waiting), *mesh.sort_axes(waiting)):
                any(cut(d, a) for d in range(len(at)))
        if waiting:
            steps.append((Move("psum", mesh.sort_axes(waiting)), at))
        if at != self.target:
            steps.append((Move("retile"), self.target))
        return (*steps, *((Move("place", (a,)), self.target) for a in mesh.sort_axes(self.start)))


def _plus(one: _Cost, other: _Cost) -> _Cost:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _moves(mesh: AbstractMesh, shape: Shape, state: _State, source: Entries, target: Entries,
           differ: list[int], finish: Pending, start: Pending
           ) -> Iterator[tuple[Move, Entries, Pending]]:
    """The moves from a state, with the state that each leads to."""
    spec, pending = state
    used = pending.union(*spec)
    tiles = [tile_count(mesh, axes) for axes in spec]
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
    groups = [unfinished] if unfinished else []
    groups += [(a,) for a in unfinished] if len(unfinished) > 1 else []
    for axes in groups:
        for d in wanting:
            if fits(d, tile_count(mesh, axes)):
                yield Move("reduce_scatter", axes, d), changed(d, spec[d] + axes), pending - {*axes}
        yield Move("psum", axes), spec, pending - {*axes}
    for a in mesh.sort_axes(start - pending):
        if a not in used:
            yield Move("place", (a,)), spec, pending | {a}
        for d in range(len(spec)):
            if spec[d] and spec[d][-1] == a:
                yield Move("place", (a,), d), changed(d, spec[d][:-1]), pending | {a}
    if not unfinished and spec != target:
        yield Move("retile"), target, pending
