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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..ir.mesh import AbstractMesh
from ..ir.rule import PASS
from ..ir.types import Entries, Shape
from .factors import Axes, RuleInfo, project, tensor_entries
from .prices import EXCHANGE, block_elements, inside, parts_of, possible
from .redistribute import least_received, plan

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

    parts = []
    for i, (dims, site) in enumerate(zip(info.maps, sites, strict=True)):
        axes, overflow, _ = project(dims, info.factors, site.entries, mesh.axis_size)
        parts.append((i, (tuple(sorted((f, a) for f, a in axes.items() if a)), overflow)))
    sums = (_NOT_PENDING,) * info.operands
    shapes, sizes = [s.shape for s in sites], [s.itemsize for s in sites]
    found = [choice for axes_of in candidates(mesh, info, parts, _NOT_PENDING)
             if (choice := legal_choice(mesh, info, shapes, sizes, axes_of, sums)) is not None]
    return min(found, key=price)


def bridge(mesh: AbstractMesh, shape: Shape, itemsize: int, source: Layout, target: Layout
           ) -> float:
    """The price of bringing a value from one layout to another; no plan is made for it.

    Of a sum it may be a little too high, since it is finished straight to where it is wanted.
    """
    if source == target:
        return 0.0
    if source[1] == target[1]:
        received: float = least_received(mesh, shape, source[0], target[0])
        return received * itemsize + EXCHANGE * (received > 0)
    received, exchanges = _finished(mesh, shape, source, target)
    return received * itemsize + EXCHANGE * exchanges


def _finished(mesh: AbstractMesh, shape: Shape, source: Layout, target: Layout
              ) -> tuple[float, int]:
    """Elements received, and exchanges, where a sum is finished, or a value becomes one."""
    size = mesh.axis_size
    finish, have = source[1] - target[1], source[0]
    start = target[1] - source[1]
    if start:                               # a value becomes a sum: free along minor axes
        whole = tuple([_without_tail(axes, start) for axes in have])
        if finish or not start.isdisjoint({a for axes in whole for a in axes}):
            steps = plan(mesh, shape, have, target[0], source[1], target[1])
            return steps.received, steps.exchanges
        moved = least_received(mesh, shape, whole, target[0])
        return moved, moved > 0
    used = {a for axes in have for a in axes}
    # blocks that the target wants are cut first, and sums are scattered to them or elsewhere
    cut = [want if want[:len(own)] == own and used.isdisjoint(want[len(own):]) else own
           for own, want in zip(have, target[0], strict=True)]
    placed = {a for axes in cut for a in axes}
    homes = {a: d for d, axes in enumerate(target[0]) for a in axes}
    summed = 1
    for a in mesh.sort_axes(finish - placed):
        first = homes.get(a, -1)
        for d in sorted(range(len(shape)), key=lambda d: d != first):
            if shape[d] % math.prod(map(size, (*cut[d], a))) == 0:
                cut[d] += (a,)
                break
        else:
            summed *= size(a)
    scattered = math.prod(map(size, finish)) // summed
    local = block_elements(mesh, shape, tuple(cut))
    moved = least_received(mesh, shape, tuple(cut), target[0])
    received = local * (scattered - 1) + 2 * local * (summed - 1) / summed + moved
    exchanges = (scattered > 1) + (summed > 1) + (moved > 0)
    away = finish - homes.keys()
    if moved and [tuple(a for a in axes if a not in away) for axes in cut] == list(target[0]):
        exchanges -= 1                      # scattered and gathered again: an all-reduce
    return received, exchanges


def _without_tail(axes: Axes, gone: Pending) -> Axes:
    count = len(axes)
    while count and axes[count - 1] in gone:
        count -= 1
    return axes[:count]


# -- enumeration -----------------------------------------------------------------------------------

Part = tuple[tuple[tuple[int, Axes], ...], Axes]    # axes of factors, and overflow, of one layout


def legal_choice(mesh: AbstractMesh, info: RuleInfo, shapes: Sequence[Shape],
                 itemsizes: Sequence[int], axes_of: dict[int, Axes], sums: tuple[Pending, ...]
                 ) -> Choice | None:
    """The choice that splits factors so; None where blocks would be strided or do not fit.

    sums: per operand, axes over which it is taken as an unfinished sum and the equation passes it
    on.
    """
    layouts = []
    for dims, plain, shape in zip(info.maps, info.plain, shapes, strict=True):
        if plain is None:
            entries = tensor_entries(dims, shape, info.factors, axes_of, mesh.axis_size)
            if entries is None or any([
                    info.factors[f].size % parts_of(mesh, axes_of.get(f, ()))
                    for split in dims if len(split) > 1 for f in split]):
                return None
        else:
            entries = tuple([axes_of.get(f, ()) for f in plain])
            for axes, n in zip(entries, shape, strict=True):
                if axes and n % parts_of(mesh, axes):
                    return None
        layouts.append(entries)
    if info.has_other_kinds and not all(
            possible(mesh, info, shapes, f, axes) for f, axes in axes_of.items() if axes):
        return None
    pending, finish = set(_NOT_PENDING.union(*sums)), []
    for f, axes in axes_of.items():
        factor = info.factors[f]
        if factor.kind == PASS or not axes:
            continue
        if factor.leaves_sum:
            pending.update(axes)
        elif factor.reducer:
            finish.append((factor.reducer, axes))
    price = inside(mesh, info, shapes, itemsizes, axes_of, layouts, finish)
    return Choice(axes_of, tuple(layouts), sums, frozenset(pending), tuple(finish), *price)


def candidates(mesh: AbstractMesh, info: RuleInfo, parts: Sequence[tuple[int, Part]],
               kept: Pending) -> Iterator[dict[int, Axes]]:
    """One factor or none for every axis in play; axes of a factor in an order some tensor has.

    parts: (tensor, what a layout of it gives to the factors). kept: axes over which operands are
    unfinished sums. An axis that passes through, and that all which could have it have, stays.
    """
    where: dict[str, set[int]] = {}
    for _, (found, overflow) in parts:
        for f, axes in found:
            for a in axes:
                where.setdefault(a, set()).add(f)
        for a in overflow:
            where.setdefault(a, set())
    if not where:
        yield {}
        return
    lacking = {a for a, factors in where.items() if len(factors) != 1}
    for i, (found, _) in parts:
        held = [a for _, axes in found for a in axes]
        for a, factors in where.items():
            if a not in held and a not in lacking and not factors.isdisjoint(info.carried[i]):
                lacking.add(a)
    if info.has_other_kinds:
        passing = [f for f, factor in enumerate(info.factors)
                   if factor.kind == PASS and info.split_ok[f] and factor.size > 1]
        for a, factors in where.items():
            if any([info.factors[f].kind != PASS for f in factors]):
                factors.update(passing)     # work along the factor while another dimension is split
                lacking.add(a)
    axes = [a for a in mesh.sort_axes(where) if a not in kept]
    options: list[list[int]] = [
        [*sorted([f for f in where[a] if info.split_ok[f]]), *([-1] if a in lacking else ())]
        or [-1] for a in axes]
    while math.prod(map(len, options)) > _MOST_CANDIDATES:
        longest = max(options, key=len)
        if len(longest) == 1:
            break
        del longest[-2 if len(longest) > 2 else -1]      # drop a factor, at last "no factor"
    if any([found[-1] >= 0 for found in options]):
        yield {}                            # in case that none of the others is possible
    for picks in itertools.product(*options):
        sets: dict[int, list[str]] = {}
        for a, f in zip(axes, picks):  # noqa: B905 (speed)
            if f >= 0:
                sets.setdefault(f, []).append(a)
        if len(sets) + picks.count(-1) == len(axes):        # one axis a factor
            yield {f: (sets[f][0],) for f in sorted(sets)}
            continue
        seen = dict.fromkeys([part for _, (found, _) in parts for part in found])
        orders = [_orders(members, [order for g, order in seen if g == f])
                  for f, members in sorted(sets.items())]
        for combination in itertools.product(*orders):
            yield dict(zip(sorted(sets), combination, strict=True))


def _orders(members: list[str], seen: Sequence[Axes]) -> list[Axes]:
    """Orders of these axes on a factor: those that tensors have, else one that extends one."""
    if len(members) == 1:
        return [(members[0],)]
    exact = list(dict.fromkeys([s for s in seen if set(s) == set(members)]))
    if exact:
        return exact[:2]
    heads = [s for s in seen if set(s) <= set(members)]
    head = max(heads, key=len, default=())
    return [(*head, *(a for a in members if a not in head))]
