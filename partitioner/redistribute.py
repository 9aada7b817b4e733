"""Redistribution: from spec A to spec B of one value by the cheapest sequence of collectives.

A plan is a shortest path over specs. The moves are the steps a mesh can do without involving
anybody but the devices along the axes that change:

    all_slice       each device keeps its own block of a dimension             free
    all_to_all      axes move from the minor end of one dimension to another's  L (n-1)/n
    all_gather      axes leave the minor end of a dimension                     L (n-1)
    ppermute        another arrangement of axes with equal tile counts          L
    reduce_scatter  a pending sum is finished, onto a dimension                 L (n-1)/n
    psum            a pending sum is finished                                   2 L (n-1)/n
    place           a whole value becomes a pending sum (zeros elsewhere)       free

with L the local elements before the move and n the devices of a group; the figures are elements
received per device. Planning works on the axes and dimensions that differ, under canonical names,
so equal problems are planned once; no intermediate block is larger than the larger of the two
ends wherever such a path exists. After "Memory-efficient array redistribution" (arXiv:2112.01075).
"""
from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.mesh import AbstractMesh
from ..ir.types import Entries, Shape

Pending = frozenset[str]

# Beyond this many differing axes permutations are tried only towards the target's own order.
_PERMUTE_ALL = 5


@dataclass(frozen=True)
class Move:
    """One step of a plan, over whole mesh axes.

    kind: as in the module's table. axes: major first. dim: the dimension that gains or loses the
    axes; to_dim: where an all_to_all takes them. perm: (source, destination) over the linear index
    of `axes`, first name most significant.
    """
    kind: str
    axes: tuple[str, ...]
    dim: int = -1
    to_dim: int = -1
    perm: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Plan:
    """Moves in order; elements received per device; number of exchanges; largest local block."""
    moves: tuple[Move, ...]
    received: int
    exchanges: int
    peak: int


EMPTY = Plan((), 0, 0, 0)


def plan(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries,
         source_pending: Pending = frozenset(), target_pending: Pending = frozenset()) -> Plan:
    """The cheapest way from one layout of a value of global `shape` to another.

    Every axis must divide its dimension in both layouts. An axis pending on both sides stays so.
    """
    if source == target and source_pending == target_pending:
        return EMPTY
    return _plan(mesh, shape, source, target, source_pending, target_pending)


@functools.lru_cache(maxsize=16384)
def _plan(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries,
          source_pending: Pending, target_pending: Pending) -> Plan:
    size = mesh.axis_size
    dims: list[int] = []          # dimensions that differ
    lengths: list[int] = []       # their sizes once the common major axes are taken out
    heads: list[tuple[str, ...]] = []
    a_tails: list[tuple[str, ...]] = []
    b_tails: list[tuple[str, ...]] = []
    rest = 1                      # local elements over the other dimensions
    for d, n in enumerate(shape):
        a, b = source[d], target[d]
        k = 0
        while k < len(a) and k < len(b) and a[k] == b[k]:
            k += 1
        n //= math.prod(size(x) for x in a[:k])
        if len(a) == k == len(b):
            rest *= n
            continue
        dims.append(d)
        lengths.append(n)
        heads.append(a[:k])
        a_tails.append(a[k:])
        b_tails.append(b[k:])
    finish = mesh.sort_axes(source_pending - target_pending)
    start = mesh.sort_axes(target_pending - source_pending)
    names = tuple(dict.fromkeys([*(x for t in a_tails for x in t), *(x for t in b_tails for x in t),
                                 *finish, *start]))
    number = {x: i for i, x in enumerate(names)}

    def numbers(tails: Sequence[tuple[str, ...]]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(number[x] for x in t) for t in tails)

    steps, received, exchanges, peak = _search(
        tuple(size(x) for x in names), tuple(lengths), numbers(a_tails), numbers(b_tails),
        frozenset(number[x] for x in finish), frozenset(number[x] for x in start))
    moves: list[Move] = []
    for step in steps:
        kind, axes, d, to = step[:4]
        named = tuple(names[i] for i in axes)
        if kind == "ppermute":
            named = mesh.sort_axes(named)
            before, after = (tuple(tuple(names[i] for i in t) for t in spec) for spec in step[4:])
            perm = permutation(tuple((x, size(x)) for x in named), before, after)
            moves.append(Move(kind, named, perm=perm))
            continue
        move = Move(kind, named, dims[d] if d >= 0 else -1, dims[to] if to >= 0 else -1)
        last = moves[-1] if moves else None
        if (last and kind in ("all_slice", "reduce_scatter")
                and (last.kind, last.dim) == (kind, move.dim)):
            moves[-1] = Move(kind, last.axes + named, move.dim)
        else:
            moves.append(move)
    return Plan(tuple(moves), math.ceil(received * rest - 1e-6), exchanges, peak * rest)


# -- search ----------------------------------------------------------------------------------

Spec = tuple[tuple[int, ...], ...]


@functools.lru_cache(maxsize=16384)
def _search(sizes: tuple[int, ...], lengths: tuple[int, ...], source: Spec, target: Spec,
            finish: frozenset[int], start: frozenset[int]) -> tuple[tuple, int, int, int]:
    """Dijkstra over (spec, pending axes); costs are (elements, exchanges, steps)."""
    for capped in (True, False):
        found = _dijkstra(sizes, lengths, source, target, finish, start, capped)
        if found is not None:
            return found
    raise AssertionError(f"no path from {source} to {target} over axes of sizes {sizes}")


def _dijkstra(sizes, lengths, source, target, finish, start, capped):
    def local(spec: Spec) -> int:
        n = math.prod(lengths)
        for axes in spec:
            for a in axes:
                n //= sizes[a]
        return n

    cap = max(local(source), local(target)) if capped else None
    goal = (target, start)
    first = (source, finish)
    queue: list[tuple] = [((0, 0, 0), 0, first)]
    best: dict[tuple, tuple] = {first: (0, 0, 0)}
    came: dict[tuple, tuple] = {}
    done: set[tuple] = set()
    ticket = 0                  # equal costs: first come, first served; states are not ordered
    while queue:
        cost, _, state = heapq.heappop(queue)
        if state in done:
            continue
        if state == goal:
            steps: list[tuple] = []
            peak = local(source)
            while state in came:
                state, step = came[state]
                peak = max(peak, local(state[0]))
                steps.append(step)
            return tuple(reversed(steps)), cost[0], cost[1], max(peak, local(target))
        done.add(state)
        spec, pending = state
        here = local(spec)
        for step, new_spec, new_pending, moved in _moves(
                sizes, lengths, spec, pending, finish, start, source, target, here):
            if cap is not None and local(new_spec) > cap:
                continue
            reached = (new_spec, new_pending)
            exchange = step[0] not in ("all_slice", "place")
            new = (cost[0] + moved, cost[1] + exchange, cost[2] + 1)
            if reached not in done and new < best.get(reached, (math.inf,)):
                best[reached] = new
                came[reached] = (state, step)
                ticket += 1
                heapq.heappush(queue, (new, ticket, reached))
    return None


def _moves(sizes, lengths, spec: Spec, pending, finish, start, source: Spec, target: Spec,
           here: int) -> Iterator[tuple]:
    """(step, spec, pending, elements received) of every move that is possible from a state."""
    used = {a for axes in spec for a in axes} | pending
    tiles = [math.prod(sizes[a] for a in axes) for axes in spec]
    spatial = sorted({a for s in (source, target) for axes in s for a in axes})
    count = len(spec)

    def extended(d: int, axes: tuple[int, ...], base: Spec = spec) -> Spec:
        return (*base[:d], base[d] + axes, *base[d + 1:])

    def cut(d: int, k: int) -> Spec:
        return (*spec[:d], spec[d][:len(spec[d]) - k], *spec[d + 1:])

    for a in spatial:
        if a not in used:
            for d in range(count):
                if lengths[d] % (tiles[d] * sizes[a]) == 0:
                    yield ("all_slice", (a,), d, -1), extended(d, (a,)), pending, 0
    for d in range(count):
        for k in range(1, len(spec[d]) + 1):
            axes = spec[d][-k:]
            n = math.prod(sizes[a] for a in axes)
            shorter = cut(d, k)
            yield ("all_gather", axes, d, -1), shorter, pending, here * (n - 1)
            for to in range(count):
                if to != d and lengths[to] % (tiles[to] * n) == 0:
                    yield (("all_to_all", axes, d, to), extended(to, axes, shorter), pending,
                           here * (n - 1) // n)
    unfinished = sorted(pending & finish)
    for a in unfinished:
        for d in range(count):
            if lengths[d] % (tiles[d] * sizes[a]) == 0:
                yield (("reduce_scatter", (a,), d, -1), extended(d, (a,)), pending - {a},
                       here * (sizes[a] - 1) // sizes[a])
    groups = [tuple(unfinished)] if unfinished else []
    groups += [(a,) for a in unfinished] if len(unfinished) > 1 else []
    for axes in groups:
        n = math.prod(sizes[a] for a in axes)
        yield ("psum", axes, -1, -1), spec, pending - set(axes), 2 * here * (n - 1) / n
    for a in sorted(start - pending):
        if a not in used:
            yield ("place", (a,), -1, -1), spec, pending | {a}, 0
        for d in range(count):
            if spec[d] and spec[d][-1] == a:
                yield ("place", (a,), d, -1), cut(d, 1), pending | {a}, 0
    free = [a for a in spatial if a not in pending]
    for other in _rearrangements(sizes, spec, tuple(tiles), free, target):
        changed = {a for x, y in zip(spec, other, strict=True) if x != y for a in (*x, *y)}
        step = ("ppermute", tuple(sorted(changed)), -1, -1, spec, other)
        yield step, other, pending, here


def _rearrangements(sizes, spec: Spec, tiles: tuple[int, ...], free: list[int], target: Spec
                    ) -> Iterator[Spec]:
    """Other specs over the free axes in which each dimension has as many tiles as in `spec`."""
    if len(free) > _PERMUTE_ALL:
        wanted = tuple(t if math.prod(sizes[a] for a in t) == n else s
                       for s, t, n in zip(spec, target, tiles, strict=True))
        axes = [a for t in wanted for a in t]
        if wanted != spec and len(set(axes)) == len(axes) and set(axes) <= set(free):
            yield wanted
        return

    def fill(d: int, left: tuple[int, ...]) -> Iterator[Spec]:
        if d == len(tiles):
            yield ()
            return
        for axes, rest in sequences(tiles[d], left):
            for others in fill(d + 1, rest):
                yield (axes, *others)

    def sequences(n: int, left: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple]]:
        if n == 1:
            yield (), left
        for a in left:
            if sizes[a] > 1 and n % sizes[a] == 0:
                for axes, rest in sequences(n // sizes[a], tuple(x for x in left if x != a)):
                    yield (a, *axes), rest

    if any(sizes[a] == 1 for axes in spec for a in axes):
        return      # axes of size one move by gathering and slicing, which is free
    for other in fill(0, tuple(free)):
        if other != spec:
            yield other


# -- permutations ----------------------------------------------------------------------------

@functools.lru_cache(maxsize=1024)
def permutation(axes: tuple[tuple[str, int], ...], before: tuple[tuple[str, ...], ...],
                after: tuple[tuple[str, ...], ...]) -> tuple[tuple[int, int], ...]:
    """(source, destination) pairs over the linear index of `axes` (first one most significant).

    Device `destination` needs in `after` the tile that `source` has in `before`; a device that
    has its tile already keeps it. Computed on the coordinates of one replica group, so the cost
    does not depend on the rest of the mesh.
    """
    names = [name for name, _ in axes]
    shape = tuple(n for _, n in axes)
    coordinates = dict(zip(names, np.indices(shape, sparse=True), strict=True))
    size_of = dict(axes)

    def tiles(spec: tuple[tuple[str, ...], ...]) -> np.ndarray:
        index = np.zeros(shape, dtype=np.int64)
        for dim in spec:
            for name in dim:
                if name in size_of:
                    index = index * size_of[name] + coordinates[name]
        return index.ravel()

    changed = [i for i, (x, y) in enumerate(zip(before, after, strict=True)) if x != y]
    have = tiles(tuple(before[i] for i in changed))
    need = tiles(tuple(after[i] for i in changed))
    source = np.arange(have.size)
    moving = np.flatnonzero(have != need)
    givers = moving[np.argsort(have[moving], kind="stable")]
    takers = moving[np.argsort(need[moving], kind="stable")]
    source[takers] = givers
    return tuple((int(s), d) for d, s in enumerate(source))
