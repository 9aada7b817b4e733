"""The local rule: each equation in the layout of its result, as XLA's partitioner does it.

Propagation (Shardy's, as here) decides the layout of every value; XLA then takes the equations one
by one. Most run in the layout of their result, with operands resharded to it. Reductions run in the
layout of their operands, and the sum is finished at once. Products, lookups and concatenations have
rules of their own (products.py, lookups.py, common_axes.py). There is no look-ahead, and no cost
but that of a lookup.
"""
from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from ....ir.meshes.axes import axes_overlap
from ....ir.meshes.mesh import BaseMesh
from ....ir.rules.factor import HALO, INDEXED, ORDERED, PASS, REDUCE, REPLICATE, SCAN
from ....ir.types import Entries
from ...factors import Axes, RuleInfo, tensor_entries
from ..costs import parts_of
from ..decisions import Decision
from ..lookahead import LayoutPaths, LookaheadSearch
from ..strategies import Strategy
from .common_axes import common_axes
from .groups import DeviceGroups, LayoutPath
from .lookups import LookupGroups
from .products import ProductGroups

AxesOf = dict[int, Axes]


class LocalRule(LookaheadSearch):
    """A `LookaheadSearch` that decides each equation on its own."""

    types_stay = True

    def _collect_preferences(self) -> None:
        pass

    def _search(self) -> None:
        """Take for each equation the strategy that the rule gives, whatever its neighbours take."""
        memo = self.layouts.memo
        for k, (decision, _, _) in enumerate(self.parts):
            if decision.info is None:
                continue
            key = _strategy, decision
            if key not in memo:
                memo[key] = _strategy(decision, decision.info)
            self.found[k], paths = memo[key]
            self.paths.update(paths)


def _strategy(decision: Decision, info: RuleInfo) -> tuple[Strategy | Decision, LayoutPaths]:
    """The strategy of an equation, its decision if nothing has to move; and the layouts through
    which its operands pass.
    """
    paths: LayoutPaths = {}
    whole = _whole_factors(info)
    table = decision.table
    candidates = table.candidates
    parts = [dict(candidates.part(m, home)[0])
             for m, home in zip(table.maps, decision.homes, strict=True)]
    groups = _groups(info)
    if decision.settled is not None and groups is not LookupGroups and not any(
            [whole.intersection(part) for part in parts]):
        return decision, paths
    mesh = decision.layouts.mesh
    if groups is not None:
        axes_of, intermediate = groups(info, mesh).run(parts)
        for i, path in enumerate(intermediate):
            paths[decision, i] = _layouts(decision, i, path)
    elif _is_concatenation(info) and any([part != parts[-1] for part in parts]):
        shapes = [decision.layouts.shapes[kind][0] for kind in decision.kinds]
        axes_of = common_axes(info, parts, [*map(math.prod, shapes)], whole, mesh)
    else:
        axes_of = _elementwise(info, parts, mesh)
        for f in _from_whole(decision, axes_of, parts):
            del axes_of[f]
    _move_axes(decision, axes_of, whole, parts)
    if any(a not in mesh.shape for axes in axes_of.values() for a in axes):
        axes_of = _without_overlaps(axes_of)
    decision.layouts.numbers[tuple(axes_of.values()), frozenset()]      # makes new axes known

    def strategy(axes_of: AxesOf) -> Strategy | None:
        return table.strategy(candidates.candidate(dict(sorted(axes_of.items()))), decision.sums)
    while True:
        found = strategy(axes_of)
        if found is None and info.kind == "structural" and info.operands == 1:
            found = strategy(parts[0])      # a reshape that no block of its result comes from
        if found is not None:
            return found, paths
        assert axes_of, "every equation can run on whole operands"
        axes_of.pop(max(reversed(axes_of), key=lambda f: info.factors[f].kind != PASS))


def _groups(info: RuleInfo) -> type[DeviceGroups] | None:
    """The groups of devices in which an equation is split, if it is."""
    if len(info.maps) != info.operands + 1:
        return None
    if info.operands == 2 and info.is_product:
        return ProductGroups
    reads = info.operands == 2 and any(f.leaves_sum for f in info.factors)
    return LookupGroups if (reads or info.operands == 3) and _indexed(info) else None


def _layouts(decision: Decision, i: int, path: LayoutPath) -> list[tuple[Entries | None, Hashable]]:
    """The layouts of an operand, from the axes that its factors have."""
    info, layouts, found = decision.info, decision.layouts, []
    assert info is not None
    for axes_of, inside in path:
        entries = axes_of if axes_of is None else tensor_entries(
            info.maps[i], layouts.shapes[decision.kinds[i]][0], info.factors, axes_of,
            layouts.mesh.axis_size)
        if entries is not None and layouts.joint is not None:
            try:
                entries = tuple([layouts.joint.spelled(axes) for axes in entries])
            except ValueError:                      # a part of a joint axis but not of its axes
                continue
        if entries is not None or axes_of is None:
            found.append((entries, inside))
    return found


def _without_overlaps(axes_of: AxesOf) -> AxesOf:
    """The factors without axes of which others have a part, or that are a part of one of others."""
    found: AxesOf = {}
    used: list[str] = []
    for f, axes in axes_of.items():
        for a in axes:
            if not any([axes_overlap(a, b) for b in used]):
                found[f] = (*found.get(f, ()), a)
                used.append(a)
    return found


def _indexed(info: RuleInfo) -> bool:
    """Does it look up several places, at the indices of an array?"""
    return (info.operands > 1 and bool(info.maps[1])
            and any(f.kind == INDEXED for f in info.factors))


def _is_concatenation(info: RuleInfo) -> bool:
    """Is it a concatenation?"""
    return info.operands > 1 and any([f.operator == "joined" for f in info.factors])


def _whole_factors(info: RuleInfo) -> frozenset[int]:
    """The factors that XLA never splits: a sorted or scanned dimension, the dimension along which
    operands are concatenated or shifted, and windows of several rows that are read or written at
    indices.
    """
    windows = _indexed(info) and any(
        f.kind == REPLICATE and f.size > 1 and k not in info.carried[1] and any(
            k in c for c in info.carried[2:]) for k, f in enumerate(info.factors))
    operands = info.carried[:info.operands]
    return frozenset([
        k for k, f in enumerate(info.factors) if not info.split_ok[k] or f.kind == SCAN
        or f.operator == "columns" or (windows and f.kind == INDEXED)
        or f.operator == "joined" and _is_concatenation(info)
        or (f.kind == HALO and (f.offset or not f.reach) and sum(k in c for c in operands) > 1)])


def _from_whole(decision: Decision, axes_of: AxesOf, parts: list[AxesOf]) -> list[int]:
    """The factors of windows, paddings, scans and reversals with axes along which operands are
    whole: the result is cut out of what they give as a whole. Slices have their operand cut first.
    """
    info = decision.info
    assert info is not None
    if info.is_product:
        return []
    used = {a for part in parts[:info.operands] for axes in part.values() for a in axes}
    shape, found = decision.layouts.shapes[decision.kinds[-1]][0], []
    for f, axes in axes_of.items():
        factor = info.factors[f]
        is_slice = factor.reach == 1 and any([
            t == len(info.maps) - 1 and shape[d] < factor.size for t, d, _ in info.positions[f]])
        if factor.kind in (HALO, SCAN) and used.isdisjoint(axes) and not is_slice:
            found.append(f)
    return found


def _move_axes(decision: Decision, axes_of: AxesOf, whole: frozenset[int], parts: list[AxesOf]
               ) -> None:
    """Move the axes of factors that are not split to a pass-through factor, if one is free: to any
    for sorting and joining, else to one that has them already.
    """
    info, mesh = decision.info, decision.layouts.mesh
    assert info is not None
    for f in [f for f in axes_of if f in whole]:
        axes = axes_of.pop(f)
        n, anywhere = parts_of(mesh, axes), info.factors[f].kind in (HALO, ORDERED)
        for g, other in enumerate(info.factors):
            own = axes_of.get(g, ())
            parts_then = n * parts_of(mesh, own)
            if (other.kind == PASS and other.size % parts_then == 0 and other.size > 1
                    and len(info.positions[g]) >= len(info.maps) - 1
                    and (anywhere or any(part.get(g) == axes for part in parts))):
                axes_of[g] = (*own, *axes)
                break


def _elementwise(info: RuleInfo, parts: list[AxesOf], mesh: BaseMesh) -> AxesOf:
    """The factors of an op that is no product: as the result has them; as operands have them if it
    sums, or all of several are laid out alike, or it is a slice of one in more tiles.
    """
    operands, results = parts[:info.operands], parts[info.operands:]
    kinds = {f.kind for f in info.factors}
    if REDUCE in kinds:
        return _in_order(operands)
    if INDEXED in kinds and info.operands > 1 and any([
            info.factors[f].kind == REPLICATE for part in results for f in part]):
        return {}                           # XLA does not split what is read at an index
    if len(operands) == 1 and not any([f.kind == REPLICATE for f in info.factors]):
        if INDEXED in kinds:                # a single row
            return _in_order([*results, *operands])
        if HALO in kinds and _tiles(operands[0], mesh) > _tiles(results[0], mesh):
            return _in_order(parts)
    if len(operands) > 1 and all([part == operands[0] for part in operands]):
        return _in_order(parts)
    return _in_order(results)


def _tiles(part: AxesOf, mesh: BaseMesh) -> int:
    return math.prod([parts_of(mesh, axes) for axes in part.values()])


def _in_order(parts: Sequence[AxesOf]) -> AxesOf:
    """Each factor with the axes of the first tensor that has it; each axis at one factor only."""
    found: AxesOf = {}
    used: set[str] = set()
    for part in parts:
        for f, axes in part.items():
            if f not in found and used.isdisjoint(axes):
                found[f] = axes
                used.update(axes)
    return found
