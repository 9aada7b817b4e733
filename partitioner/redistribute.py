"""Redistribution: from spec A to spec B of one value by the cheapest sequence of collectives.

What a device must receive at least is known (ir/retiling.py), and reached: by moves with a name
where there are such (shortest.py), else by one exchange of kind `retile`. Pending sums are finished
on the way, where that costs least:

    reduce_scatter  a pending sum is finished, onto a dimension                 L (n-1)/n
    psum            a pending sum is finished                                   2 L (n-1)/n
    place           a whole value becomes a pending sum (zeros elsewhere)       free

with L the local elements before the move and n the devices of a group; the figures are elements
received per device. Plans are made of the axes that differ: neither the plan nor the time that it
takes grows with the number of devices. No intermediate block is larger than the larger of the two
ends wherever such a path exists. After "Memory-efficient array redistribution" (arXiv:2112.01075).
"""
from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..ir.axes import axis_factor
from ..ir.mesh import AbstractMesh
from ..ir.retiling import (
    Tiling,
    disjoint_axes,
    joined_axes,
    partners,
    received,
    retiled_shape,
)
from ..ir.types import Entries, Shape
from .joint_axes import Joined, rows_of
from .shortest import Path, Step, expanded, shortest

Pending = frozenset[str]


@dataclass(frozen=True)
class Move:
    """One step of a plan.

    kind: all_slice, all_gather, all_to_all, retile, reduce_scatter, psum, place, or view (a reshape
    of blocks to `shape`). axes: mesh axes or parts of them, major first. dim: the dimension that
    gains or loses the axes; to_dim: where an all_to_all takes them. source, target: the tilings of
    a retile.
    """
    kind: str
    axes: tuple[str, ...] = ()
    dim: int = -1
    to_dim: int = -1
    source: Tiling = ()
    target: Tiling = ()
    shape: Shape = ()


@dataclass(frozen=True)
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
    size = mesh.axis_size
    units = []
    parts = common = 1
    for have, want in zip(source, target):  # noqa: B905 (speed)
        if have == want:
            tiles = _tiles(mesh, have) if have else 1
            units.append(tiles)
            parts *= tiles
            common *= tiles
            continue
        for a, b in zip(have, want):  # noqa: B905 (speed)
            if a != b:
                if ":" in a or ":" in b or size(a) == 1 or size(b) == 1:
                    return None
                common = 0              # an axis meets another one: some keep nothing
        tiles, wanted = _tiles(mesh, have), _tiles(mesh, want)
        parts *= wanted
        more = tiles if tiles > wanted else wanted
        common *= more
        units.append(math.lcm(tiles, wanted) if more % tiles or more % wanted else more)
    return tuple(units), parts, common


def least_received(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries) -> int:
    """The elements that a plan between two layouts receives, without looking for the plan."""
    share = share_received(mesh, source, target)
    if share is None:
        return _bound(mesh, _divided(mesh, shape, source, target), source, target)
    units, parts, common = share
    whole = math.prod([-(-n // unit) * unit for n, unit in zip(shape, units, strict=True)])
    return whole // parts - (whole // common if common else 0)


@functools.lru_cache(maxsize=16384)
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
            return replace(found, moves=tuple([_spelled(move, joint) for move in found.moves]))
    shape = _divided(mesh, shape, source, target)
    if moves is not None:
        pass
    elif source_pending == target_pending:
        moves = _retiled(mesh, shape, source, target)
    else:
        moves = _finished(mesh, shape, source, target, source_pending - target_pending,
                          target_pending - source_pending)
    local = _local(mesh, shape, source)
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
            return [Move("reduce_scatter", more, d)] if finish == {*more} and not more[1:] else None
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


def effect(mesh: AbstractMesh, local: Shape, move: Move) -> tuple[Shape, float, int]:
    """(block after, elements received, elements under way) of a move of a block of this shape."""
    if move.kind == "view":
        return move.shape, 0, 0
    here, shape = math.prod(local), list(local)
    if move.kind == "retile":
        size = {a: mesh.axis_size(a) for t in (move.source, move.target) for e in t for a in e}
        after = retiled_shape(local, move.source, move.target, size)
        several = partners(move.source, move.target, size)
        return (after, received(local, move.source, move.target, size),
                math.prod(after) // several if several > 1 else 0)
    n = math.prod(map(mesh.axis_size, move.axes))
    if move.kind == "psum":
        return local, 2 * here * (n - 1) / n, 0
    if move.kind == "place":
        if move.dim >= 0:
            shape[move.dim] *= n
        return tuple(shape), 0, 0
    if move.kind == "all_gather":
        shape[move.dim] *= n
        return tuple(shape), here * (n - 1), 0
    if move.kind == "all_to_all":
        shape[move.dim] *= n
        shape[move.to_dim] //= n
        return tuple(shape), here * (n - 1) // n, 0
    shape[move.dim] //= n
    return tuple(shape), 0 if move.kind == "all_slice" else here * (n - 1) // n, 0


@functools.lru_cache(maxsize=4096)
def _tiles(mesh: AbstractMesh, axes: tuple[str, ...]) -> int:
    return math.prod(map(mesh.axis_size, axes))


def _local(mesh: AbstractMesh, shape: Shape, entries: Entries) -> Shape:
    return tuple([n // _tiles(mesh, axes) for n, axes in zip(shape, entries, strict=True)])


def _divided(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries) -> Shape:
    """The shape with dimensions rounded up to what both layouts divide."""
    out = []
    for n, a, b in zip(shape, source, target, strict=True):
        unit = math.lcm(_tiles(mesh, a), _tiles(mesh, b))
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
        return math.prod(_local(mesh, shape, target))
    size = {x: mesh.axis_size(x) for t in (a, b) for e in t for x in e}
    return received(_local(mesh, shape, source), a, b, size)


# -- tilings --------------------------------------------------------------------------------------

def _retiled(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries) -> list[Move]:
    """The moves between two tilings."""
    if source == target:
        return []
    try:
        disjoint_axes([source, target], mesh.shape)
    except ValueError:                          # 2 of 6 devices and 3 of them: by way of all
        bases = {axis_factor(a, mesh.shape)[0] for axes in target for a in axes}
        middle = tuple(tuple(a for a in axes if axis_factor(a, mesh.shape)[0] not in bases)
                       for axes in source)
        return [*_retiled(mesh, shape, source, middle), *_retiled(mesh, shape, middle, target)]
    found: tuple[tuple[int, int, int], list[Move]] | None = None
    problems = []
    for cut in (None, _common_parts(mesh, source, target)):
        if cut is not None and not any(cut.values()):
            break
        problem = _Tails(mesh, shape, *disjoint_axes([source, target], mesh.shape, cut))
        problems.append(problem)
        path = problem.path(problem.lengths, problem.source, problem.target)
        if path is not None and (found is None or path.score < found[0]):
            found = path.score, problem.moves(path)
        if found is not None and found[0] <= (1, 0, 1):
            break
    if found is not None:
        return found[1]
    return problems[0].expanded() or problems[0].direct()


def _common_parts(mesh: AbstractMesh, source: Entries, target: Entries) -> dict[str, list[int]]:
    """Where to cut axes so that a part of one is as large as another: {"y": [2]} for 2 and 2 * 2.
    """
    bases = {axis_factor(a, mesh.shape)[0] for t in (source, target) for axes in t for a in axes}
    sizes = {a: mesh.shape[a] for a in mesh.axis_names if a in bases}
    cuts: dict[str, list[int]] = {}
    for a, n in sizes.items():
        common = {math.gcd(n, m) for b, m in sizes.items() if b != a}
        cuts[a] = sorted({p for c in common for p in (c, n // c) if 1 < p < n})
    return cuts


class _Tails:
    """Two tilings without what they have in common: the dimensions that differ, without the axes
    that both begin with.
    """

    def __init__(self, mesh: AbstractMesh, shape: Shape, source: Tiling, target: Tiling) -> None:
        self.mesh, self.local = mesh, _local(mesh, shape, source)
        self.final = _local(mesh, shape, target)
        self.dims: list[int] = []
        lengths, a_tails, b_tails = [], [], []
        for d, (n, a, b) in enumerate(zip(shape, source, target, strict=True)):
            k = 0
            while k < len(a) and k < len(b) and a[k] == b[k]:
                k += 1
            if len(a) == k == len(b):
                continue
            self.dims.append(d)
            lengths.append(n // _tiles(mesh, a[:k]))
            a_tails.append(a[k:])
            b_tails.append(b[k:])
        self.lengths = tuple(lengths)
        self.source, self.target = tuple(a_tails), tuple(b_tails)
        names = dict.fromkeys(x for t in (*a_tails, *b_tails) for x in t)
        self.sizes = tuple((x, mesh.axis_size(x)) for x in names)

    def path(self, lengths: tuple[int, ...], source: Tiling, target: Tiling) -> Path | None:
        """The shortest path, found under names and sizes that all problems of this form share.

        Axes are numbered, and of a dimension's size only that is kept which axes can divide.
        """
        most = math.prod(n for _, n in self.sizes)
        number = {a: str(i) for i, (a, _) in enumerate(self.sizes)}
        name = {i: a for a, i in number.items()}

        def renamed(tiling: Tiling, names: dict[str, str]) -> Tiling:
            return tuple([tuple([names[a] for a in axes]) for axes in tiling])

        found = shortest(tuple([math.gcd(n, most) for n in lengths]),
                         tuple([(number[a], n) for a, n in self.sizes]),
                         renamed(source, number), renamed(target, number))
        if found is None:
            return None
        steps = tuple([Step(s.kind, tuple([name[a] for a in s.axes]), s.dim, s.to_dim,
                            renamed(s.after, name)) for s in found.steps])
        return Path(lengths, source, steps, found.score)

    def moves(self, path: Path, dims: Sequence[int] | None = None, rank: int = 0) -> list[Move]:
        """The moves of a path, on the dimensions of the value."""
        dims = self.dims if dims is None else dims
        rank = rank or len(self.local)
        out: list[Move] = []
        before = path.source
        for step in path.steps:
            out.append(self._retile(before, step, dims, rank) if step.kind == "retile" else
                       Move(step.kind, step.axes, dims[step.dim],
                            dims[step.to_dim] if step.to_dim >= 0 else -1))
            before = step.after
            last = out[-2] if len(out) > 1 else None
            if (last and last.kind == step.kind == "all_slice" and last.dim == out[-1].dim):
                out[-2:] = [Move("all_slice", last.axes + step.axes, last.dim)]
        return [self._joined(move) for move in out]

    def _joined(self, move: Move) -> Move:
        """With parts of an axis that follow each other as one."""
        if not move.axes or move.kind == "retile":
            return move
        ((axes,),) = joined_axes([(move.axes,)], self.mesh.shape)
        return Move(move.kind, axes, move.dim, move.to_dim)

    def _retile(self, before: Tiling, step: Step, dims: Sequence[int], rank: int) -> Move:
        tilings = []
        for tiling, other in ((before, step.after), (step.after, before)):
            whole: list[tuple[str, ...]] = [()] * rank
            for d, axes, theirs in zip(dims, tiling, other, strict=True):
                k = 0
                while k < len(axes) and k < len(theirs) and axes[k] == theirs[k]:
                    k += 1
                whole[d] = axes[k:]
            tilings.append(tuple(whole))
        source, target = joined_axes(tilings, self.mesh.shape)
        names = self.mesh.sort_axes({a for t in (source, target) for axes in t for a in axes})
        return Move("retile", names, source=source, target=target)

    def direct(self) -> list[Move]:
        """One exchange, whatever it is."""
        step = Step("retile", (), -1, -1, self.target)
        return [self._retile(self.source, step, self.dims, len(self.local))]

    def expanded(self) -> list[Move] | None:
        """Through dimensions of their own for all axes that differ."""
        found = expanded(self.lengths, dict(self.sizes), self.source, self.target)
        if found is None:
            return None
        parts, path = found
        dims, shape = [], []
        at = 0
        for d, n in enumerate(self.local):
            if d not in self.dims:
                shape.append(n)
                continue
            for length in parts[self.dims.index(d)]:
                dims.append(len(shape))
                axes = path.source[at]
                shape.append(length // _tiles(self.mesh, axes))
                at += 1
        return [Move("view", shape=tuple(shape)), *self.moves(path, dims, len(shape)),
                Move("view", shape=self.final)]


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
            moves += _retiled(mesh, shape, at, after)
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
        return math.prod(_local(mesh, shape, entries))

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
                moved = effect(mesh, _local(mesh, shape, state[0]), move)[1]
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
    tiles = [_tiles(mesh, axes) for axes in spec]
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
                if to != d and fits(to, _tiles(mesh, axes)):
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
