"""One propagation step: the axes that one equation propagates between its operands and results.

Where factors want the same axis on a tensor, the one that comes from the larger tensor has it, as
by Shardy's aggressive strategy. A step only appends axes at the minor end of a factor. Steps are
pure functions of shardings, remembered per rule.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Entries, Shape
from ..factors import Axes, AxisSize, RuleInfo, dim_axes, project

NONE, FORWARD, BACKWARD, BOTH = 0, 1, 2, 3
_NONE: frozenset = frozenset()


class Layout(NamedTuple):
    """The layout of a value during propagation.

    open: for each dimension, whether axes may still be appended. blocked: axes that may not be
    placed on this value (decided by its type, pending or Manual).
    """
    shape: Shape
    entries: Entries
    open: tuple[bool, ...]
    blocked: frozenset[str]


class Extension(NamedTuple):
    """New entries for one tensor of an equation; for each new axis (dim, axis, source tensor, its
    dim).
    """
    position: int
    entries: Entries
    origins: tuple[tuple[int, str, int, int], ...]


def agree(info: RuleInfo, layouts: Sequence[Layout | None]) -> bool:
    """Do all tensors of an equation have the same axes for each factor, so that nothing can be
    added?
    """
    if not info.simple:             # not so simple then, except for tensors without axes
        for layout in layouts:
            if layout is not None:
                for axes in layout.entries:
                    if axes:
                        return False
        return True
    return not _differing(info, layouts, info.flowing)


def _differing(info: RuleInfo, layouts: Sequence[Layout | None], factors: Sequence[int]
               ) -> list[int]:
    """The factors on which tensors differ, for rules whose factors are dimensions."""
    found = []
    for f in factors:
        held: Axes | None = None
        for t, d, _ in info.positions[f]:
            axes = layouts[t].entries[d]  # type: ignore[union-attr]
            if held is None:
                held = axes
            elif axes != held:
                found.append(f)
                break
    return found


def step(info: RuleInfo, layouts: Sequence[Layout | None], direction: int, pass_only: bool,
         size: AxisSize) -> tuple[Extension, ...]:
    """What this equation adds to the layout of each tensor (None: a tensor without dimensions)."""
    factors = info.passing if pass_only else info.flowing
    if info.simple:
        factors = _differing(info, layouts, factors)
        if not factors:
            return ()
        found = _undisputed(info, layouts, direction, factors, size)
        if found is not None:
            return found
    return _Step(info, layouts, direction, factors, size).run()


def _undisputed(info: RuleInfo, layouts: Sequence[Layout | None], direction: int,
                factors: Sequence[int], size: AxisSize
                ) -> tuple[Extension, ...] | None:
    """The step if all tensors that have axes of a factor have the same, and nothing keeps these
    from the others. None otherwise.
    """
    rows: list[Any] = [layout and [*layout.entries] for layout in layouts]
    origins: dict[int, list[tuple[int, str, int, int]]] = {}
    for f in factors:
        positions = info.positions[f]
        wanted: Axes = ()
        holders, sends, from_t, from_d = 0, direction == BOTH, -1, -1
        for t, d, _ in positions:
            axes = rows[t][d]
            if axes:
                if not holders:
                    wanted, from_t, from_d = axes, t, d
                elif axes != wanted:
                    return None
                holders += 1
                sends = sends or (t < info.operands) == (direction == FORWARD)
        if not sends:
            continue
        if info.kind == "structural" and positions[-1][0] < info.operands:
            return None                     # operands follow results, without the factor
        seen = 0
        for row in rows:
            for axes in row or ():
                for a in axes:
                    if a in wanted:
                        seen += 1
        if seen != holders * len(wanted):
            return None                     # another factor of the tensor has one of them
        parts = 1
        for a in wanted:
            parts *= size(a)
        for t, d, _ in positions:
            if rows[t][d]:
                continue
            layout = layouts[t]
            assert layout is not None
            if not layout.open[d] or layout.shape[d] % parts or not layout.blocked.isdisjoint(
                    wanted):
                return None
            rows[t][d] = wanted
            if t not in origins:
                origins[t] = []
            origins[t] += [(d, a, from_t, from_d) for a in wanted]
    return tuple([Extension(t, tuple(rows[t]), tuple(sorted(origins[t], key=_DIMENSION)))
                  for t in sorted(origins)])


_DIMENSION = itemgetter(0)


class _Step:
    """The factors' axes of all tensors of an equation, while a step works on them.

    busy: per tensor, the axes of all its factors. loose: overflow and blocked axes.
    """

    def __init__(self, info: RuleInfo, layouts: Sequence[Layout | None], direction: int,
                 factors: Sequence[int], size: AxisSize) -> None:
        self.info, self.layouts, self.size, self.direction = info, layouts, size, direction
        self.axes: list[dict[int, Axes]] = []
        self.busy: list[set[str]] = []
        self.loose: list[frozenset[str]] = []
        self.closed: list[frozenset[int]] = []
        for dims, layout in zip(info.maps, layouts, strict=True):
            if layout is None:
                self.axes.append({})
                self.loose.append(_NONE)
                self.closed.append(_NONE)
                self.busy.append(set())
                continue
            found, overflow, closed = project(dims, info.factors, layout.entries, size)
            self.axes.append(found)
            self.busy.append({a for axes in found.values() for a in axes})
            self.loose.append(layout.blocked.union(overflow) if overflow else layout.blocked)
            self.closed.append(closed)
        if not info.simple:
            factors = [f for f in factors if self.differ(f)]
        self.active = factors

    def differ(self, f: int) -> bool:
        """Do tensors have different axes for a factor? Only then is there something to add."""
        positions = self.info.positions[f]
        return any(self.axes[t][f] != self.axes[positions[0][0]][f] for t, _, _ in positions)

    def run(self) -> tuple[Extension, ...]:
        """Extend the factors as far as possible, and return what tensors gain by it."""
        if not self.active:
            return ()
        before = [a.copy() for a in self.axes]
        self.extend()
        out = []
        for t, layout in enumerate(self.layouts):
            if layout is not None and self.axes[t] != before[t]:
                extension = self.extension(t, layout, before)
                if extension is not None:
                    out.append(extension)
        return tuple(out)

    def hold(self, t: int, f: int, axes: Axes) -> None:
        self.axes[t][f] = axes
        self.busy[t].update(axes)

    # -- axes of factors -----------------------------------------------------------------------

    def compatible(self, f: int) -> Axes:
        """The longest list of axes of a factor on which its tensors agree."""
        n, direction = self.info.operands, self.direction
        positions = self.info.positions[f]
        if direction == BACKWARD:
            positions = sorted(positions, key=lambda position: position[0] < n)
        best: Axes = ()
        can_grow = True
        for t, _, _ in positions:
            axes = self.axes[t][f]
            if not axes:
                continue
            k = 0
            while k < len(best) and k < len(axes) and best[k] == axes[k]:
                k += 1
            if k < len(best) and k < len(axes):
                best, can_grow = best[:k], False
            elif len(axes) > len(best) and can_grow and (
                    direction == BOTH or (t < n) == (direction == FORWARD)):
                best = axes
        return best

    def fits(self, axis: str, t: int, f: int, dim: int, before: Axes) -> bool:
        """May `axis` follow the axes `before` on this factor of this tensor?"""
        layout = self.layouts[t]
        assert layout is not None
        own = self.axes[t][f]
        if axis in own:
            return True
        if (axis in self.loose[t] or not layout.open[dim] or f in self.closed[t]
                or before[:len(own)] != own):
            return False
        parts = self.size(axis)
        for a in before:
            parts *= self.size(a)
        split = self.info.maps[t][dim]
        whole = layout.shape[dim] if len(split) == 1 else self.info.factors[f].size
        return whole % parts == 0

    def taken(self, axis: str, t: int, f: int) -> bool:
        """Is the axis on another factor of the tensor, or forbidden there?"""
        return ((axis in self.busy[t] or axis in self.loose[t])
                and axis not in self.axes[t].get(f, ()))

    def extend(self) -> None:
        """Append the axes of each factor to the tensors that lack them."""
        info = self.info
        wanted = {f: axes for f in self.active if (axes := self.compatible(f))}
        if not wanted:
            return
        structural = info.kind == "structural"

        def source(f: int) -> tuple[int, int]:
            best = (0, -1)
            for t, place in enumerate(info.places):
                if self.layouts[t] is not None and self.axes[t].get(f) == wanted[f]:
                    elements = math.prod(info.factors[g].size for g, _, _ in place)
                    if elements > best[0]:
                        best = (elements, t)
            return best

        def rank(f: int) -> tuple:
            elements, t = source(f)
            shards = math.prod(map(self.size, wanted[f])) if structural else 0
            return (-elements, -shards, t, f)

        order = sorted(wanted, key=rank)
        results = range(info.operands, info.count)
        for t in (*results, *range(info.operands)):
            if self.layouts[t] is None:
                continue
            where = {g: d for g, d, _ in info.places[t]}
            for f in order:
                if f not in where or not info.carries(f, t):
                    continue
                d = where[f]
                new: Axes = ()
                limit = wanted[f]
                if structural and t < info.operands:
                    held = [self.axes[r].get(f, ()) for r in results]
                    limit = max((a for a in held if a == limit[:len(a)]), key=len, default=())
                for axis in limit:
                    if not self.fits(axis, t, f, d, new) or self.taken(axis, t, f):
                        break
                    new += (axis,)
                have = self.axes[t][f]
                if len(have) < len(new) and new[:len(have)] == have:
                    self.hold(t, f, new)

    # -- back to dimensions ----------------------------------------------------------------------

    def extension(self, t: int, layout: Layout, before: list[dict[int, Axes]]
                  ) -> Extension | None:
        """The longer layout that tensor t has after the step, with the source of each axis that is
        new; None if it has none. before: the axes of its factors before the step.
        """
        entries = list(layout.entries)
        origins: list[tuple[int, str, int, int]] = []
        for d, split in enumerate(self.info.maps[t]):
            if all(self.axes[t][f] == before[t][f] for f in split):
                continue
            axes = self._longest(split, t)
            old = layout.entries[d]
            if len(axes) <= len(old) or axes[:len(old)] != old:
                continue
            if layout.shape[d] % math.prod(map(self.size, axes)):
                continue
            entries[d] = axes
            for axis in axes[len(old):]:
                f = next(f for f in split if axis in self.axes[t][f])
                origins.append((d, axis, *self._source(axis, f, t, before)))
        if not origins:
            return None
        return Extension(t, tuple(entries), tuple(origins))

    def _longest(self, split: tuple[int, ...], t: int) -> Axes:
        """Back-projection, cut at the first factor that would make blocks strided."""
        axes_of = dict(self.axes[t])
        for f in reversed(split):
            axes = dim_axes(split, self.info.factors, axes_of, self.size)
            if axes is not None:
                return axes
            axes_of[f] = ()
        return ()

    def _source(self, axis: str, f: int, t: int, before: list[dict[int, Axes]]
                ) -> tuple[int, int]:
        for s, place in enumerate(self.info.places):
            if s != t and axis in before[s].get(f, ()):
                return s, next(d for g, d, _ in place if g == f)
        return -1, -1
