"""Choices: over which axes each factor of an equation may be split, and at what price.

After propagation the tensors of an equation may still disagree. A choice gives every factor its
axes; operands are brought to it and results taken from it, by reshards that have a price
(redistribute.py), and a sum over a split factor leaves a pending sum whose end has one too. All
choices that the layouts in play suggest are enumerated, one factor (or none) per axis. Legal are
factors that pass through, those whose emitter exchanges little, and reductions that a collective
can finish; everything else is gathered. Which choice is taken depends on what comes before and
after (lookahead.py).
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..ir.mesh import AbstractMesh
from ..ir.rule import PASS
from ..ir.types import Entries, Shape
from .factors import Axes, RuleInfo, project, tensor_entries
from .prices import EXCHANGE, halo_plan, inside
from .redistribute import plan

Pending = frozenset[str]
Layout = tuple[Entries, Pending]
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

    sums: per operand, the axes over which it is taken as an unfinished sum. pending: axes over
    which the results are unfinished sums. finish: (monoid, axes) of reductions
    that are not sums, which are finished at once. price: of running it so (prices.py); received:
    bytes that its blocks exchange.
    """
    axes_of: dict[int, Axes]
    layouts: tuple[Entries, ...]
    sums: tuple[Pending, ...]
    pending: Pending
    finish: tuple[tuple[str, Axes], ...] = field(default=())
    price: float = 0.0
    received: int = 0


def choices(mesh: AbstractMesh, info: RuleInfo, shapes: Sequence[Shape],
            itemsizes: Sequence[int], hints: Sequence[Sequence[Entries]], sums: Sequence[Pending]
            ) -> list[Choice]:
    """All legal choices that layouts in play suggest; the first gathers everything.

    hints: for each operand, then each result, layouts that it is to be had in. sums: per operand,
    axes over which it is taken as an unfinished sum and the equation passes it on.
    """
    kept = _NOT_PENDING.union(*sums)
    parts = [project(dims, info.factors, entries, mesh.axis_size)[:2]
             for dims, layouts in zip(info.maps, hints, strict=True)
             for entries in dict.fromkeys(layouts)]
    found = []
    for axes_of in _candidates(mesh, info, parts, kept):
        layouts = _layouts(mesh, info, shapes, axes_of)
        if layouts is not None:
            found.append(_choice(mesh, info, shapes, itemsizes, axes_of, layouts, tuple(sums)))
    return found


def choose(mesh: AbstractMesh, info: RuleInfo, sites: Sequence[Site]) -> Choice:
    """The cheapest choice for an equation by itself, which finishes all sums.

    sites: operands with their layouts, then results with the layouts they must end in.
    """
    def price(choice: Choice) -> float:
        total = choice.price
        counted: set[tuple[Site, Entries]] = set()
        for i, (site, target) in enumerate(zip(sites, choice.layouts, strict=True)):
            here = site.entries, site.pending
            if i >= info.operands:
                total += bridge(mesh, site.shape, site.itemsize, (target, choice.pending), here)
            elif (site, target) not in counted:
                counted.add((site, target))
                total += bridge(mesh, site.shape, site.itemsize, here, (target, choice.sums[i]))
        return total

    found = choices(mesh, info, [s.shape for s in sites], [s.itemsize for s in sites],
                    [(s.entries,) for s in sites], [_NOT_PENDING] * info.operands)
    return min(found, key=price)


def bridge(mesh: AbstractMesh, shape: Shape, itemsize: int, source: Layout, target: Layout
           ) -> float:
    """The price of bringing a value from one layout to another."""
    if source == target:
        return 0.0
    steps = plan(mesh, shape, source[0], target[0], source[1], target[1])
    return steps.received * itemsize + EXCHANGE * steps.exchanges


# -- enumeration -----------------------------------------------------------------------------------

def _layouts(mesh: AbstractMesh, info: RuleInfo, shapes: Sequence[Shape],
             axes_of: Mapping[int, Axes]) -> tuple[Entries, ...] | None:
    out = []
    for dims, shape in zip(info.maps, shapes, strict=True):
        entries = tensor_entries(dims, shape, info.factors, axes_of, mesh.axis_size)
        if entries is None:
            return None
        out.append(entries)
    if info.has_halos and any(
            info.factors[f].reach and halo_plan(mesh, info, shapes, f, axes) is None
            for f, axes in axes_of.items() if axes):
        return None
    return tuple(out)


def _choice(mesh: AbstractMesh, info: RuleInfo, shapes: Sequence[Shape],
            itemsizes: Sequence[int], axes_of: dict[int, Axes], layouts: tuple[Entries, ...],
            sums: tuple[Pending, ...]) -> Choice:
    pending, finish = set(_NOT_PENDING.union(*sums)), []
    for f, axes in sorted(axes_of.items()):
        factor = info.factors[f]
        if axes and factor.leaves_sum:
            pending.update(axes)
        elif axes and factor.reducer:
            finish.append((factor.reducer, axes))
    price = inside(mesh, info, shapes, itemsizes, axes_of, layouts, finish)
    return Choice(axes_of, layouts, sums, frozenset(pending), tuple(finish), *price)


Part = tuple[Mapping[int, Axes], Axes]          # axes of factors, and overflow, of one layout


def _candidates(mesh: AbstractMesh, info: RuleInfo, parts: Sequence[Part], kept: Pending
                ) -> Iterator[dict[int, Axes]]:
    """One factor or none for every axis in play; axes of a factor in an order some tensor has."""
    where: dict[str, set[int]] = {}
    for found, overflow in parts:
        for f, axes in found.items():
            for a in axes:
                where.setdefault(a, set()).add(f)
        for a in overflow:
            where.setdefault(a, set())
    passing = [f for f, factor in enumerate(info.factors)
               if factor.kind == PASS and info.split_ok[f] and factor.size > 1]
    for factors in where.values():
        if any(info.factors[f].kind != PASS for f in factors):
            factors.update(passing)     # work along the factor while another dimension is split
    axes = [a for a in mesh.sort_axes(where) if a not in kept]
    options: list[list[int]] = [[*sorted(f for f in where[a] if info.split_ok[f]), -1]
                                for a in axes]
    while math.prod(map(len, options)) > _MOST_CANDIDATES:
        longest = max(options, key=len)
        if len(longest) == 1:
            break
        del longest[-2 if len(longest) > 2 else -1]      # drop a factor, at last "no factor"
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


def _orders(f: int, members: list[str], parts: Sequence[Part]) -> list[Axes]:
    """Orders of these axes on a factor: those that tensors have, else one that extends one."""
    seen = [found[f] for found, _ in parts if found.get(f)]
    exact = list(dict.fromkeys(s for s in seen if set(s) == set(members)))
    if exact:
        return exact[:2]
    heads = [s for s in seen if set(s) <= set(members)]
    head = max(heads, key=len, default=())
    return [(*head, *(a for a in members if a not in head))]
