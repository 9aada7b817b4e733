"""Moves between two layouts without partial sums, and the lower bound on what they move.

Axes that lead a dimension in both layouts stay. The others are moved by the shortest sequence of
named collectives (shortest.py) if there is one, else by a single `retile` exchange.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...ir.meshes.axes import axis_factor
from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.retiling import Tiling, disjoint_axes, merged_axes, received
from ...ir.types import Entries, Shape
from .effects import Move, local_shape, tile_count
from .shortest import Path, Step, expanded, shortest

# (what the dimensions must be multiples of, number of blocks in the end, number of pieces of which
# a device keeps one; 0: it may keep nothing).
Share = tuple[tuple[int, ...], int, int]


def share_received(mesh: AbstractMesh, source: Entries, target: Entries) -> Share | None:
    """The share of a value, of any size, that a plan between two layouts receives, without making
    one.

    Nothing is pending; plans reach this bound unless parts of axes have no common parts. None where
    parts of axes, or axes of one device, need a closer look.
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
                    common = 0              # axes change places: some devices keep nothing
        wanted = tile_count(mesh, want) if want else 1
        parts *= wanted
        more = tiles if tiles > wanted else wanted
        common *= more
        units += (math.lcm(tiles, wanted) if more % tiles or more % wanted else more,)
    return units, parts, common


def bound(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries) -> int:
    """The elements that the busiest device receives at least."""
    share = share_received(mesh, source, target)
    if share is not None:
        _, parts, common = share
        whole = math.prod(shape)
        return whole // parts - (whole // common if common else 0)
    try:
        a, b = disjoint_axes([source, target], mesh.shape)
    except ValueError:                          # parts of an axis without a common subdivision
        return math.prod(local_shape(mesh, shape, target))
    size = {x: mesh.axis_size(x) for t in (a, b) for e in t for x in e}
    return received(local_shape(mesh, shape, source), a, b, size)


def retiled(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries) -> list[Move]:
    """The moves between two tilings."""
    if source == target:
        return []
    try:
        disjoint_axes([source, target], mesh.shape)
    except ValueError:                          # such as 2 and 3 of 6 devices: by way of the whole
        bases = {axis_factor(a, mesh.shape)[0] for axes in target for a in axes}
        middle = tuple(tuple(a for a in axes if axis_factor(a, mesh.shape)[0] not in bases)
                       for axes in source)
        return [*retiled(mesh, shape, source, middle), *retiled(mesh, shape, middle, target)]
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
    return (_without_single(mesh, shape, source, target) or problems[0].expanded()
            or problems[0].direct())


def _without_single(mesh: AbstractMesh, shape: Shape, source: Entries, target: Entries
                    ) -> list[Move] | None:
    """The moves when axes of one device are dropped first and added last; None if no such axis
    differs.
    """
    def split(tiling: Entries, other: Entries) -> tuple[Entries, list[tuple[int, tuple[str, ...]]]]:
        single = [(d, tuple([a for a in axes if axes != theirs and mesh.axis_size(a) == 1]))
                  for d, (axes, theirs) in enumerate(zip(tiling, other, strict=True))]
        return tuple([tuple([a for a in axes if a not in gone])
                      for axes, (_, gone) in zip(tiling, single, strict=True)]), [
                          (d, gone) for d, gone in single if gone]

    have, leave = split(source, target)
    want, enter = split(target, source)
    if not leave and not enter:
        return None
    return [*(Move("all_gather", axes, d) for d, axes in leave), *retiled(mesh, shape, have, want),
            *(Move("all_slice", axes, d) for d, axes in enter)]


def _common_parts(mesh: AbstractMesh, source: Entries, target: Entries) -> dict[str, list[int]]:
    """Where to cut axes so that they have parts of the same sizes: {"y": [2]} for 2 and 2 * 2."""
    bases = {axis_factor(a, mesh.shape)[0] for t in (source, target) for axes in t for a in axes}
    sizes = {a: mesh.shape[a] for a in mesh.axis_names if a in bases}
    cuts: dict[str, list[int]] = {}
    for a, n in sizes.items():
        common = {math.gcd(n, m) for b, m in sizes.items() if b != a}
        cuts[a] = sorted({p for c in common for p in (c, n // c) if 1 < p < n})
    return cuts


def _moving(axes: tuple[str, ...], others: tuple[str, ...], size: Mapping[str, int]
            ) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The axes of a dimension before and after a retile, without those along which nothing moves:
    those that both begin with and, where both cut it into as many tiles, those along which tiles
    are equally far apart: `x` of `(y, x, z)` and `(z, x, y)`, all of one size.
    """
    k = 0
    while k < len(axes) and k < len(others) and axes[k] == others[k]:
        k += 1
    axes, others = axes[k:], others[k:]
    if math.prod([size[a] for a in axes]) == math.prod([size[a] for a in others]):
        stays = _strides(axes, size).items() & _strides(others, size).items()
        axes, others = (tuple([a for a in one if not any([a == b for b, _ in stays])])
                        for one in (axes, others))
    return axes, others


def _strides(axes: tuple[str, ...], size: Mapping[str, int]) -> dict[str, int]:
    """How many tiles apart neighbours along each axis are."""
    found, apart = {}, 1
    for a in reversed(axes):
        found[a] = apart
        apart *= size[a]
    return found


class _Tails:
    """Two tilings reduced to the dimensions that differ, without the axes with which both begin."""

    def __init__(self, mesh: AbstractMesh, shape: Shape, source: Tiling, target: Tiling) -> None:
        self.mesh, self.local = mesh, local_shape(mesh, shape, source)
        self.final = local_shape(mesh, shape, target)
        self.dims: list[int] = []
        lengths, a_tails, b_tails = [], [], []
        for d, (n, a, b) in enumerate(zip(shape, source, target, strict=True)):
            k = 0
            while k < len(a) and k < len(b) and a[k] == b[k]:
                k += 1
            if len(a) == k == len(b):
                continue
            self.dims.append(d)
            lengths.append(n // tile_count(mesh, a[:k]))
            a_tails.append(a[k:])
            b_tails.append(b[k:])
        self.lengths = tuple(lengths)
        self.source, self.target = tuple(a_tails), tuple(b_tails)
        names = mesh.sort_axes({x for t in (*a_tails, *b_tails) for x in t})
        self.sizes = tuple((x, mesh.axis_size(x)) for x in names)

    def path(self, lengths: tuple[int, ...], source: Tiling, target: Tiling) -> Path | None:
        """The shortest path, remembered for all problems of this form.

        Axes are numbered, and of a dimension's size only what axes can divide is kept.
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
        return [self._merged(move) for move in out]

    def _merged(self, move: Move) -> Move:
        """The move with consecutive parts of an axis merged."""
        if not move.axes or move.kind == "retile":
            return move
        ((axes,),) = merged_axes([(move.axes,)], self.mesh.shape)
        return Move(move.kind, axes, move.dim, move.to_dim)

    def _retile(self, before: Tiling, step: Step, dims: Sequence[int], rank: int) -> Move:
        size = dict(self.sizes)
        tilings: tuple[list[tuple[str, ...]], ...] = [()] * rank, [()] * rank
        for d, axes, others in zip(dims, before, step.after, strict=True):
            tilings[0][d], tilings[1][d] = _moving(axes, others, size)
        source, target = merged_axes(list(map(tuple, tilings)), self.mesh.shape)
        names = self.mesh.sort_axes({a for t in (source, target) for axes in t for a in axes})
        return Move("retile", names, source=source, target=target)

    def direct(self) -> list[Move]:
        """A single exchange."""
        step = Step("retile", (), -1, -1, self.target)
        return [self._retile(self.source, step, self.dims, len(self.local))]

    def expanded(self) -> list[Move] | None:
        """The moves over a reshape in which each moving axis has a dimension of its own."""
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
                shape.append(length // tile_count(self.mesh, axes))
                at += 1
        return [Move("view", shape=tuple(shape)), *self.moves(path, dims, len(shape)),
                Move("view", shape=self.final)]
