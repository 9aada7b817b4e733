"""The steps in which XLA brings a value from one layout to another.

XLA knows tiles, not axes: it compares into how many tiles each dimension is cut. In this order:

    sums            are finished first, one all-reduce for each summed dimension
    slices          axes that the value lacks cut dimensions that want more tiles
    all-to-all      one dimension with too many tiles gives as many as another one lacks
    permute         equal tiles on other devices change places, so that axes that go away come last
    all-gather      axes that go away, one dimension after the other

and where none of these leads to the target, everything is gathered and cut anew ("involuntary full
rematerialization"). `P("x", None)` becomes `P(None, ("x", "y"))` so, with y cut first:

    P("x", "y")    P(None, ("y", "x"))    P(None, ("x", "y"))
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.meshes.axes import axis_factor, format_sub_axis
from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.retiling import disjoint_axes, merged_axes
from ...ir.support.caches import cached
from ...ir.types import Entries
from .effects import tile_count

Axes = tuple[str, ...]


@cached(4096, "steps of XLA between layouts")
def steps(mesh: AbstractMesh, source: Entries, target: Entries, permutes: bool = True
          ) -> tuple[Entries, ...]:
    """The layouts on the way, ending with the target; each takes one exchange, or a slice.
    permutes: whether tiles change places where that saves gathering them.
    """
    sizes = mesh.shape
    now, end = disjoint_axes([source, target], sizes)
    found: list[Entries] = []

    def to(entries: Sequence[Axes]) -> None:
        nonlocal now
        (whole,) = merged_axes([tuple(entries)], sizes)
        if tuple(entries) != now:
            now = tuple(entries)
            found.append(whole if now != end else target)

    have, want = ({a for axes in entries for a in axes} for entries in (now, end))
    if not have <= want:
        if permutes:
            as_many = _cut_into_as_many(mesh, now, end, mesh.sort_axes(want - have))
            if as_many is not None:
                to(as_many)
                to(end)
                return tuple(found)
            to(_with_gathered_last(mesh, now, end))
        gathered = all(a[:len(b)] == b for a, b in zip(now, end, strict=True))
        for d, axes in enumerate(end):
            to([*now[:d], axes if gathered else (), *now[d + 1:]])
        to(end)
        return tuple(found)
    cut = [*now]
    for a in mesh.sort_axes(want - have) if have else [a for axes in end for a in axes]:
        lacking = [d for d in range(len(cut))
                   if tile_count(mesh, end[d]) > tile_count(mesh, cut[d])]
        own = next(d for d, axes in enumerate(end) if a in axes)
        d = own if own in lacking or not lacking else lacking[0]
        cut[d] = (*cut[d], a)
    to(cut)
    moved = _moved(mesh, now, end)
    if moved is None:
        for d in range(len(now)):
            if now[d] != end[d]:
                to([*now[:d], (), *now[d + 1:]])
    else:
        to(moved)
    to(end)
    return tuple(found)


def _cut_into_as_many(mesh: AbstractMesh, now: Entries, end: Entries, free: Axes
                      ) -> list[Axes] | None:
    """The layout with as many tiles in each dimension as the target, cut by free axes; None if
    there is none.
    """
    found = []
    for have, want in zip(now, end, strict=True):
        n, rest = divmod(tile_count(mesh, want), tile_count(mesh, have))
        parts = None if rest else _tail(mesh, free, n)
        if parts is None:
            return None
        free, cut = parts
        found.append((*have, *cut))
    return found


def _with_gathered_last(mesh: AbstractMesh, now: Entries, end: Entries) -> Sequence[Axes]:
    """The layout that has the axes that go away behind those that stay; as it is where some of
    those that stay are not there, or the axes do not fit.
    """
    extra = mesh.sort_axes({a for axes in now for a in axes} - {a for axes in end for a in axes})
    found = []
    for have, want in zip(now, end, strict=True):
        n = tile_count(mesh, have) / tile_count(mesh, want)
        parts = (tuple([a for a in extra if a not in have[len(want):]]), have[len(want):])
        if have[:len(want)] != want or not {*have[len(want):]} <= {*extra}:
            if n % 1:
                return now
            parts = _tail(mesh, extra, int(n))
        if parts is None:
            return now
        extra, taken = parts
        found.append((*want, *taken))
    return found


def _moved(mesh: AbstractMesh, source: Entries, target: Entries) -> list[Axes] | None:
    """The layout after dimensions with too many tiles have passed axes to dimensions that lack as
    many; None if no two match.
    """
    now = [*source]
    counts = [tile_count(mesh, axes) for axes in now]
    wanted = [tile_count(mesh, axes) for axes in target]
    lacking = [d for d in range(len(now)) if counts[d] < wanted[d]]
    for d in range(len(now)):
        if counts[d] <= wanted[d]:
            continue
        to = next((e for e in lacking if counts[d] * counts[e] == wanted[d] * wanted[e]), None)
        parts = None if to is None else _tail(mesh, now[d], counts[d] // wanted[d])
        if parts is None or to is None:
            return None
        lacking.remove(to)
        now[d], tail = parts
        now[to] += tail
    return None if lacking else now


def _tail(mesh: AbstractMesh, axes: Axes, n: int) -> tuple[Axes, Axes] | None:
    """(the axes in front, the minor axes that make n tiles); None if no minor axes do."""
    for k in range(len(axes), -1, -1):
        count = tile_count(mesh, axes[k:])
        if count == n:
            return axes[:k], axes[k:]
        if count > n:
            base, pre, size, _ = axis_factor(axes[k], mesh.shape)
            rest = n // math.gcd(n, count // size)
            if n % (count // size) or size % rest:
                return None
            front = format_sub_axis(base, pre, size // rest)
            back = format_sub_axis(base, pre * (size // rest), rest)
            return (*axes[:k], front), (back, *axes[k + 1:])
    return None
