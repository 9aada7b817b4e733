"""Partial sums: how they are finished, or started, on the way to another layout.

    reduce_scatter  a pending sum is finished, onto a dimension                 L (n-1)/n
    psum            a pending sum is finished                                   2 L (n-1)/n
    place           a whole value becomes a pending sum (zeros elsewhere)       free

with L the local elements before the move and n the devices of a group; the figures are elements
received per device. Blocks are cut, gathered and exchanged in between, as in shortest.py.
"""
from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

from ...ir.meshes.mesh import AbstractMesh
from ...ir.types import Entries, Shape
from .between_tilings import bound, retiled
from .effects import Move, effect, local_shape, tile_count
from .shortest import states

STATES = 150            # states that a search visits, for few axes

Pending = frozenset[str]
_State = tuple[Entries, Pending]                # a layout, and the axes of pending sums
_Cost = tuple[float, int, int]                  # (elements received, exchanges, steps)
_Path = tuple[tuple[Move, Entries], ...]         # moves, each with the layout after it


def finished(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries, finish: Pending,
             start: Pending) -> list[Move]:
    """The moves when sums are finished or started on the way: those found by a search, whose
    changes of tiling are planned separately.
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


class _Search:
    """A* over (layout, pending axes). Once nothing is left to finish, the rest is a change of
    tilings, whose cost is its bound.

    Some paths are known from the start (`path`). The search looks for a better one, for a limited
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

    def run(self) -> _Path:
        """The cheapest path found."""
        known = [*map(self.path, ("nowhere", "home", "anywhere"))]
        costs = [*map(self.cost, known)]
        most = min(costs)
        first, target = (self.source, self.finish), (self.target, self.start)
        ticket = itertools.count()      # breaks ties by order of discovery
        queue: list[tuple] = [(self.lower_bound(first), next(ticket), (0, 0, 0), first, ())]
        best: dict[_State, _Cost] = {first: (0, 0, 0)}
        axes = self.finish.union(*self.source, *self.target)
        for _ in range(states(STATES, len(axes))):
            if not queue:
                break
            _, _, cost, state, path = heapq.heappop(queue)
            if cost > best[state]:
                continue
            if state == target:
                return path
            for move, reached, new in self.steps(state, cost):
                if new < best.get(reached, most):
                    best[reached] = new
                    total = _plus(new, self.lower_bound(reached))
                    if total < most:
                        heapq.heappush(queue, (total, next(ticket), new, reached,
                                               (*path, (move, reached[0]))))
        return known[costs.index(most)]

    def steps(self, state: _State, cost: _Cost) -> Iterator[tuple[Move, _State, _Cost]]:
        """For each move from a state: the move, the next state, and the total cost there."""
        local = local_shape(self.mesh, self.shape, state[0])
        for move, entries, pending in self.moves(state):
            more = self.step(state[0], local, move, entries)
            if more is not None:
                yield move, (entries, pending), _plus(cost, more)

    def step(self, at: Entries, local: Shape, move: Move, after: Entries) -> _Cost | None:
        """The cost of a move of a block of this shape; None if the next block is too large. A
        change of tiling may take more than one exchange, so it counts as two.
        """
        if move.kind == "retile":
            lacks = bound(self.mesh, self.shape, at, after)
            return lacks, 2 * (lacks > 0), 1
        block, moved, _ = effect(self.mesh, local, move)
        return (moved, int(moved > 0), 1) if math.prod(block) <= self.cap else None

    def moves(self, state: _State) -> Iterator[tuple[Move, Entries, Pending]]:
        """The moves from a state, each with the next state."""
        mesh, shape, source, target = self.mesh, self.shape, self.source, self.target
        differ = self.differ
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
                        yield (Move("all_to_all", axes, d, to),
                               changed(to, spec[to] + axes, shorter), pending)
        unfinished = mesh.sort_axes(pending & self.finish)
        groups = [unfinished] if unfinished else []
        groups += [(a,) for a in unfinished] if len(unfinished) > 1 else []
        for axes in groups:
            rest = pending - {*axes}
            for d in wanting:
                if fits(d, tile_count(mesh, axes)):
                    yield Move("reduce_scatter", axes, d), changed(d, spec[d] + axes), rest
            yield Move("psum", axes), spec, rest
        for a in mesh.sort_axes(self.start - pending):
            if a not in used:
                yield Move("place", (a,)), spec, pending | {a}
            for d in range(len(spec)):
                if spec[d] and spec[d][-1] == a:
                    yield Move("place", (a,), d), changed(d, spec[d][:-1]), pending | {a}
        if not unfinished and spec != target:
            yield Move("retile"), target, pending

    def lower_bound(self, state: _State) -> _Cost:
        """A lower bound for the rest of the path: what a device lacks of its final block, or all of
        that block if it is part of a sum.
        """
        if state not in self.ahead:
            entries, pending = state
            lacks = bound(self.mesh, self.shape, entries, self.target)
            if pending & self.finish:
                lacks = max(lacks, self.final)
            self.ahead[state] = lacks, int(lacks > 0), int(state != (self.target, self.start))
        return self.ahead[state]

    def cost(self, path: _Path) -> _Cost:
        found: _Cost = (0, 0, 0)
        at = self.source
        for move, after in path:
            local = local_shape(self.mesh, self.shape, at)
            found = _plus(found, self.step(at, local, move, after) or (math.inf, 0, 0))
            at = after
        return found

    def path(self, cuts: str) -> _Path:
        """A path known from the start: sums are finished, then the tiling changes. Before that
        blocks are cut, and sums scattered, along the axes that the target has or sums wait for:
        "nowhere", on the dimension where the target has them ("home"), or on any that they divide
        ("anywhere"). Cuts come before sums, and minor axes, whose links are the fastest, before
        major ones.
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

        ends = [d for d in self.differ if self.target[d][:len(at[d])] == at[d]]
        rank = {a: (a in waiting, -n) for n, a in enumerate(
            mesh.sort_axes({a for d in ends for a in self.target[d]}))}
        stuck: set[int] = set()
        for a, d in heapq.merge(*[[(a, d) for a in self.target[d][len(at[d]):]] for d in ends],
                                key=lambda step: rank[step[0]]) if cuts != "nowhere" else ():
            if d not in stuck and not cut(d, a):
                stuck.add(d)
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
