"""Choice: which axes each factor of an equation is split over, by bytes on the wire.

After propagation the tensors of an equation may still disagree. A choice gives every factor its
axes; operands are brought to it and results taken from it, by reshards that have a price
(redistribute.py), and a sum over a split factor leaves a pending sum whose end has one too. All
choices that the current layouts suggest are enumerated, one factor (or none) per axis, and the
cheapest is taken: bytes received, then exchanges, then local work. Legal are factors that pass
through and reductions that can be finished by a collective; everything else is gathered.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..ir.halo import Exchange
from ..ir.mesh import AbstractMesh
from ..ir.ops.neighbours import plan_of
from ..ir.rule import HALO, ORDERED, PASS, REDUCE, SCAN
from ..ir.types import Entries, Shape
from .factors import Axes, RuleInfo, project, tensor_entries
from .redistribute import plan

Pending = frozenset[str]
_NOT_PENDING: Pending = frozenset()
_MOST_CANDIDATES = 256


@dataclass(frozen=True)
class Site:
    """One tensor of an equation: whole shape, bytes of an element, layout, pending axes."""
    shape: Shape
    itemsize: int
    entries: Entries
    pending: Pending = _NOT_PENDING


@dataclass(frozen=True)
class Choice:
    """axes_of: factor -> axes. layouts: operands as needed, then results as produced.

    pending: axes over which the results are unfinished sums. finish: (monoid, axes) of reductions
    that are not sums, which are finished at once.
    """
    axes_of: dict[int, Axes]
    layouts: tuple[Entries, ...]
    pending: Pending
    finish: tuple[tuple[str, Axes], ...] = field(default=())


def choose(mesh: AbstractMesh, info: RuleInfo, sites: Sequence[Site], kept: Pending,
           free: Sequence[frozenset[Entries]] = ()) -> Choice:
    """The cheapest legal choice for an equation.

    sites: operands with their layouts, then results with the layouts they must end in. kept: axes
    over which the equation passes pending sums on. free: per operand, layouts that it can be had
    in for nothing, because it was brought there before.
    """
    parts = [project(dims, info.factors, site.entries, mesh.axis_size)
             for dims, site in zip(info.maps, sites, strict=True)]
    agreed = _agreement(mesh, info, sites, parts, kept)
    if agreed is not None:
        return agreed
    best: tuple | None = None
    for axes_of in _candidates(mesh, info, parts, kept):
        layouts = _layouts(mesh, info, sites, axes_of)
        if layouts is None:
            continue
        choice = _choice(info, axes_of, layouts, kept)
        cost = _cost(mesh, info, sites, choice, free)
        if best is None or cost < best[0]:
            best = (cost, choice)
    assert best is not None, "gathering everything is always legal"
    return best[1]


def _layouts(mesh, info, sites, axes_of) -> tuple[Entries, ...] | None:
    out = []
    for dims, site in zip(info.maps, sites, strict=True):
        entries = tensor_entries(dims, site.shape, info.factors, axes_of, mesh.axis_size)
        if entries is None:
            return None
        out.append(entries)
    if info.has_halos and any(
            info.factors[f].reach and _halo_plan(mesh, info, sites, f, axes) is None
            for f, axes in axes_of.items() if axes):
        return None
    return tuple(out)


def _choice(info: RuleInfo, axes_of: dict[int, Axes], layouts: tuple[Entries, ...],
            kept: Pending) -> Choice:
    pending, finish = set(kept), []
    for f, axes in sorted(axes_of.items()):
        factor = info.factors[f]
        if axes and factor.leaves_sum:
            pending.update(axes)
        elif axes and factor.reducer:
            finish.append((factor.reducer, axes))
    return Choice(axes_of, layouts, frozenset(pending), tuple(finish))


def _agreement(mesh, info, sites, parts, kept) -> Choice | None:
    """The choice that changes no layout, if the tensors agree and it is legal."""
    axes_of: dict[int, Axes] = {}
    for found, overflow, _ in parts:
        if overflow:
            return None
        for f, axes in found.items():
            if axes_of.setdefault(f, axes) != axes:
                return None
    used = [a for f, axes in axes_of.items() for a in axes]
    if len(set(used)) != len(used) or not kept.isdisjoint(used):
        return None
    if any(axes and not info.split_ok[f] for f, axes in axes_of.items()):
        return None
    layouts = _layouts(mesh, info, sites, axes_of)
    if layouts is None or any(x != site.entries for x, site in zip(layouts, sites, strict=True)):
        return None
    return _choice(info, {f: a for f, a in axes_of.items() if a}, layouts, kept)


def _candidates(mesh, info, parts, kept) -> Iterator[dict[int, Axes]]:
    """One factor or none for every axis in play; axes of a factor in an order some tensor has."""
    where: dict[str, set[int]] = {}
    for found, overflow, _ in parts:
        for f, axes in found.items():
            for a in axes:
                where.setdefault(a, set()).add(f)
        for a in overflow:
            where.setdefault(a, set())
    passing = [f for f, factor in enumerate(info.factors)
               if factor.kind == PASS and info.split_ok[f] and factor.size > 1]
    for found in where.values():
        if any(info.factors[f].kind != PASS for f in found):
            found.update(passing)       # work along the factor while another dimension is split
    axes = [a for a in mesh.sort_axes(where) if a not in kept]
    options: list[list[int]] = [[*sorted(f for f in where[a] if info.split_ok[f]), -1]
                                for a in axes]
    while math.prod(map(len, options)) > _MOST_CANDIDATES:
        longest = max(options, key=len)
        del longest[-2 if len(longest) > 2 else -1]      # drop a factor, at last "no factor"
        if len(longest) == 1 and all(len(o) == 1 for o in options):
            break
    yield {}
    for picks in itertools.product(*options):
        sets: dict[int, list[str]] = {}
        for a, f in zip(axes, picks, strict=True):
            if f >= 0:
                sets.setdefault(f, []).append(a)
        if sets:
            orders = [_orders(f, members, parts) for f, members in sorted(sets.items())]
            for combination in itertools.product(*orders):
                yield dict(zip(sorted(sets), combination, strict=True))


def _orders(f: int, members: list[str], parts) -> list[Axes]:
    """Orders of these axes on a factor: those that tensors have, else one that extends one."""
    seen = [found[f] for found, _, _ in parts if found.get(f)]
    exact = list(dict.fromkeys(s for s in seen if set(s) == set(members)))
    if exact:
        return exact[:2]
    heads = [s for s in seen if set(s) <= set(members)]
    head = max(heads, key=len, default=())
    return [(*head, *(a for a in members if a not in head))]


def _cost(mesh, info, sites, choice: Choice, free) -> tuple[int, int, int]:
    received = exchanges = work = 0
    n = info.operands
    counted: set = set()
    for i, (site, target) in enumerate(zip(sites, choice.layouts, strict=True)):
        if i < n:
            stays = site.pending & choice.pending
            if free and target in free[i] and not site.pending:
                steps = None
            else:
                steps = plan(mesh, site.shape, site.entries, target, site.pending, stays)
        else:
            steps = plan(mesh, site.shape, target, site.entries, choice.pending, site.pending)
        if steps is not None and (site, target, i >= n) not in counted:
            received += steps.received * site.itemsize
            exchanges += steps.exchanges
        local = math.prod(site.shape)
        for axes in target:
            for a in axes:
                local //= mesh.axis_size(a)
        work += local
        if i >= n:
            for _, axes in choice.finish:
                size = math.prod(map(mesh.axis_size, axes))
                received += 2 * (size - 1) * local * site.itemsize // size
                exchanges += 1
            for f, axes in choice.axes_of.items():
                summary = _summary(mesh, info, f, local, axes)
                if summary:
                    size = math.prod(map(mesh.axis_size, axes))
                    received += (size - 1) * summary * site.itemsize
                    exchanges += 1
        elif info.has_halos and i == 0:            # other operands with the factor are bases
            for f, axes in choice.axes_of.items():
                rows, block = _halo(mesh, info, sites, f, axes, i)
                received += rows * (local // max(block, 1)) * site.itemsize
                exchanges += bool(rows)
    return received, exchanges, work


def _halo(mesh: AbstractMesh, info: RuleInfo, sites: Sequence[Site], f: int, axes: Axes,
          operand: int) -> tuple[int, int]:
    """Rows of an operand that a device receives for halo factor f, and the rows of its block."""
    factor = info.factors[f]
    dim = next((d for g, d, _ in info.places[operand] if g == f), None)
    if factor.kind != HALO or dim is None:
        return 0, 1
    devices = math.prod(map(mesh.axis_size, axes))
    block = sites[operand].shape[dim] // devices
    if not factor.reach:
        return block, block                    # mirrored: another block than its own
    plan = _halo_plan(mesh, info, sites, f, axes)
    return (plan.received if plan else 0), block


def _halo_plan(mesh: AbstractMesh, info: RuleInfo, sites: Sequence[Site], f: int, axes: Axes
               ) -> Exchange | None:
    sizes = [sites[t].shape[d] for t in (0, info.operands) for g, d, _ in info.places[t] if g == f]
    return plan_of(info.factors[f], math.prod(map(mesh.axis_size, axes)), sizes[0], sizes[-1])


def _summary(mesh: AbstractMesh, info: RuleInfo, f: int, local: int, axes: Axes) -> int:
    """Elements of a result that each block tells all others where factor f is split.

    local: elements of the result's block.
    """
    factor = info.factors[f]
    if factor.kind == SCAN:                    # the block's total: one position along the factor
        return local * math.prod(map(mesh.axis_size, axes)) // max(factor.size, 1)
    if factor.kind == ORDERED:                 # its best elements, and their positions likewise
        return local
    if factor.kind == REDUCE and factor.operator in ("argmax", "argmin"):
        return 2 * local                       # its best element and the position of that
    return 0
