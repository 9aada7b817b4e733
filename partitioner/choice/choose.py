"""Choices: over which axes each factor of an equation may be split, and at what price.

After propagation the tensors of an equation may still disagree. A choice gives every factor its
axes; operands are brought to it and results taken from it, by reshards that have a price
(redistribute.py), and a sum over a split factor leaves a pending sum whose end has one too. Legal
are factors that pass through, those whose emitter exchanges little, and reductions that a
collective can finish; everything else is gathered. What is tried follows from the layouts in play
(options.py); which choice is taken depends on what comes before and after (lookahead.py).
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.mesh import AbstractMesh
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Entries, Shape
from ..factors import Axes, RuleInfo, tensor_entries
from ..redistribution.redistribute import least_received, plan
from .prices import EXCHANGE, block_elements, inside, parts_of, possible

Pending = frozenset[str]
Layout = tuple[Entries, Pending]
_NOT_PENDING: Pending = frozenset()
_WHOLE: Entries = ((),)


class Choice(NamedTuple):
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
    finish: tuple[tuple[str, Axes], ...] = ()
    price: float = 0.0
    received: int = 0

    # one per option; its parts cannot be hashed
    __hash__ = object.__hash__                  # type: ignore[assignment]


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
    finish, have = source[1] - target[1], source[0]
    start = target[1] - source[1]
    if start:                               # a value becomes a sum: free along minor axes
        whole = tuple([_without_tail(axes, start) for axes in have])
        if finish or not start.isdisjoint({a for axes in whole for a in axes}):
            steps = plan(mesh, shape, have, target[0], source[1], target[1])
            return steps.received, steps.exchanges
        moved = least_received(mesh, shape, whole, target[0])
        return moved, moved > 0
    wanted = target[0]
    cut, placed = [*have], {a for axes in have for a in axes}
    if have != wanted:
        # blocks that the target wants are cut first, and sums are scattered to them or elsewhere
        used = placed
        for d, (own, want) in enumerate(zip(have, wanted)):  # noqa: B905 (speed)
            if (want != own and want[:len(own)] == own
                    and used.isdisjoint(want[len(own):])):
                cut[d] = want
                placed = placed.union(want)
    summed = scattered = 1
    homes = {a: d for d, axes in enumerate(wanted) for a in axes}
    waiting: Sequence[str] = [a for a in finish if a not in placed]
    if len(waiting) > 1:
        waiting = mesh.sort_axes(waiting)
    dims = range(len(shape)) if waiting else ()
    for a in waiting:
        for d in (homes[a], *dims) if a in homes else dims:
            if shape[d] % parts_of(mesh, (*cut[d], a)) == 0:
                cut[d] += (a,)
                break
        else:
            summed *= parts_of(mesh, (a,))
    for a in finish:
        scattered *= parts_of(mesh, (a,))
    scattered //= summed
    reached = tuple(cut)
    local = block_elements(mesh, shape, reached)
    moved = 0 if reached == wanted else least_received(mesh, shape, reached, wanted)
    received = local * (scattered - 1) + 2 * local * (summed - 1) / summed + moved
    exchanges = (scattered > 1) + (summed > 1) + (moved > 0)
    if moved:
        away = [a for a in finish if a not in homes]
        if [tuple([a for a in axes if a not in away]) for axes in reached] == list(wanted):
            exchanges -= 1                      # scattered and gathered again: an all-reduce
    return received, exchanges


def _without_tail(axes: Axes, gone: Pending) -> Axes:
    count = len(axes)
    while count and axes[count - 1] in gone:
        count -= 1
    return axes[:count]


def legal_choice(mesh: AbstractMesh, info: RuleInfo, shapes: Sequence[Shape],
                 itemsizes: Sequence[int], axes_of: dict[int, Axes], sums: tuple[Pending, ...]
                 ) -> Choice | None:
    """The choice that splits factors so; None where blocks would be strided or do not fit.

    sums: per operand, axes over which it is taken as an unfinished sum and the equation passes it
    on.
    """
    parts = {f: parts_of(mesh, axes) for f, axes in axes_of.items() if axes}
    layouts, blocks = [], list(map(math.prod, shapes))
    for t, plain in enumerate(info.plain):
        shape = shapes[t]
        if plain is None:
            dims = info.maps[t]
            entries = tensor_entries(dims, shape, info.factors, axes_of, mesh.axis_size)
            if entries is None or any([
                    info.factors[f].size % parts[f]
                    for split in dims if len(split) > 1 for f in split if f in parts]):
                return None
            for split in dims:
                for f in split:
                    if f in parts:
                        blocks[t] //= parts[f]
        else:
            entries = ()
            for f, n in zip(plain, shape):  # noqa: B905 (speed)
                if f in parts:
                    if n % parts[f]:
                        return None
                    blocks[t] //= parts[f]
                    entries += (axes_of[f],)
                else:
                    entries += _WHOLE
        layouts.append(entries)
    if info.has_other_kinds and not all(
            [possible(info, shapes, f, n) for f, n in parts.items()]):
        return None
    pending, finish = _NOT_PENDING.union(*sums), []
    for f in parts if info.has_other_kinds else ():
        factor = info.factors[f]
        if factor.leaves_sum:
            pending = pending.union(axes_of[f])
        elif factor.reducer:
            finish.append((factor.reducer, axes_of[f]))
    price = inside(info, shapes, itemsizes, parts, blocks, [
        (reducer, parts_of(mesh, axes)) for reducer, axes in finish])
    return Choice(axes_of, tuple(layouts), sums, pending, tuple(finish), *price)
