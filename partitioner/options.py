"""Options: the ways of running one rule, as the layouts in play suggest them.

What the layouts of an equation's tensors give to the factors of its rule decides what is tried: one
factor or none for every axis in play. That is a small part of what the layouts say, the same for
most of the ways of holding the operands, so what is tried is looked up by that part alone, kept as
sets of (axis, factor) in whole numbers.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from ..ir.mesh import AbstractMesh
from ..ir.rule import PASS
from .choose import Choice, Pending, legal_choice
from .factors import Axes, RuleInfo, project
from .layouts import UNIT, Held, Layouts

_EMPTY: Pending = frozenset()
_MOST_CANDIDATES = 256

Pair = tuple[int, Axes]                 # a factor, and axes that a layout gives to it
Part = tuple[tuple[Pair, ...], Axes]    # of one layout; and overflow


class Option:
    """A choice in numbers. needs: per operand the layout that it is taken in; results: the layouts
    that come out. price: in `UNIT`s.
    """

    __slots__ = ("choice", "needs", "price", "results")

    def __init__(self, choice: Choice, tensors: Held) -> None:
        count = len(choice.sums)
        self.choice, self.needs, self.results = choice, tensors[:count], tensors[count:]
        self.price = round(choice.price * UNIT)


# What the layouts of a tensor give to the factors, as a set of (axis, factor), where what overflows
# is given to a factor after the last; what they lack: factors that the tensor has, with axes that
# one of the layouts does not give to any; and the pairs in order.
_Given = tuple[int, int, tuple[Pair, ...]]


class _Shared(NamedTuple):
    """What is tried where several axes may meet on a factor: it depends on the orders of axes that
    tensors have on these factors.
    """
    axes: tuple[str, ...]
    choices: list[list[int]]
    factors: frozenset[int]
    by_orders: dict[tuple[Pair, ...], list[Option]]


class _Met(NamedTuple):
    """What is known while there are so many axes. lacking: per tensor, what it lacks where it is
    whole; given: by (tensor, layouts).
    """
    axes: int
    lacking: list[int]
    given: dict[tuple[int, Held], _Given]


class Table:
    """The options of one rule for values of certain kinds."""

    __slots__ = ("found", "info", "kinds", "layouts", "met", "options", "parts", "shapes", "sizes",
                 "width")

    def __init__(self, layouts: Layouts, info: RuleInfo, kinds: tuple[int, ...]) -> None:
        self.layouts, self.info, self.kinds = layouts, info, kinds
        self.shapes = [layouts.shapes[k][0] for k in kinds]
        self.sizes = [layouts.shapes[k][1] for k in kinds]
        self.width = len(info.factors) + 1
        self.parts: dict[tuple[int, int], Part] = {}
        self.options: dict[tuple, Option | None] = {}
        self.met = _Met(-1, [], {})         # replaced as a whole, as other threads read it
        self.found: dict[tuple, list[Option] | _Shared] = {}    # by what is given

    def part(self, tensor: int, layout: int) -> Part:
        """The axes that a layout of a tensor gives to the factors."""
        key = tensor, layout
        if key in self.parts:
            return self.parts[key]
        info, entries = self.info, self.layouts.table[layout][0]
        plain, overflow = info.plain[tensor], ()
        axes: dict[int, Axes] = {}
        if plain is None:
            axes, overflow, _ = project(info.maps[tensor], info.factors, entries,
                                        self.layouts.mesh.axis_size)
        else:
            for f, names in zip(plain, entries):  # noqa: B905 (speed)
                if f >= 0:
                    axes[f] = names
                else:
                    overflow += names
        pairs = [(f, axes[f]) for f in axes if axes[f]]
        if len(pairs) > 1:
            pairs.sort()
        found = self.parts[key] = tuple(pairs), overflow
        return found

    def _give(self, met: _Met, tensor: int, held: Held) -> _Given:
        places, width = self.layouts.places, self.width
        lacks = met.lacking[tensor]
        if len(held) == 1:
            pairs, overflow = self.part(tensor, held[0])
            has = 0
            for f, axes in pairs:
                for a in axes:
                    place = places[a] * width
                    has |= 1 << place + f
                    lacks &= ~((1 << width) - 1 << place)
            for a in overflow:
                has |= 1 << (places[a] + 1) * width - 1
            return has, lacks, pairs
        has = some = 0
        together: tuple[Pair, ...] = ()
        for n in held:
            key = tensor, (n,)
            if key not in met.given:
                met.given[key] = self._give(met, *key)
            own, lacks, pairs = met.given[key]
            has |= own
            some |= lacks
            for pair in pairs:
                if pair not in together:
                    together += (pair,)
        return has, some, together

    def suggested(self, hints: Sequence[Held], sums: tuple[Pending, ...]) -> list[Option]:
        """All legal options that these layouts of the tensors suggest."""
        met, count = self.met, len(self.layouts.places)
        if met.axes != count:
            met = self.met = self._meet(count)
        given = met.given
        has = lacks = 0
        for key in enumerate(hints):
            if key not in given:
                given[key] = self._give(met, *key)
            mine = given[key]
            has |= mine[0]
            lacks |= mine[1]
        wanted = has, has & lacks, sums
        if wanted in self.found:
            found = self.found[wanted]
        else:
            found = self.found[wanted] = self._tried(*wanted)
        if found.__class__ is not list:
            shared: _Shared = found                             # type: ignore[assignment]
            factors = shared.factors
            orders = tuple({pair: None for key in enumerate(hints) for pair in given[key][2]
                            if pair[0] in factors})
            found = shared.by_orders.get(orders)
            if found is None:
                found = shared.by_orders[orders] = self._legal(
                    _assigned(shared.axes, shared.choices, orders), sums)
        return found                                            # type: ignore[return-value]

    def _meet(self, count: int) -> _Met:
        every = sum([1 << place * self.width for place in range(count)])
        return _Met(count, [every * sum([1 << f for f in own]) for own in self.info.carried], {})

    def _tried(self, has: int, lacks: int, sums: tuple[Pending, ...]) -> list[Option] | _Shared:
        """What is tried for (axis, factor) that layouts give, and that some of them lack."""
        info, width = self.info, self.width
        where: dict[str, list[int]] = {}
        lacking = set()
        for a, place in list(self.layouts.places.items()):      # another thread may add axes
            mine = has >> place * width & (1 << width) - 1
            if mine:
                where[a] = [f for f in range(width - 1) if mine >> f & 1]
                if len(where[a]) != 1 or lacks >> place * width & mine:
                    lacking.add(a)
        axes, choices = factors_of_axes(self.layouts.mesh, info, where, lacking,
                                        _EMPTY.union(*sums))
        seen: set[int] = set()
        shared: set[int] = set()
        for factors in choices:
            shared.update(seen.intersection(factors))
            seen.update(factors)
        shared.discard(-1)
        if shared:
            return _Shared(axes, choices, frozenset(shared), {})
        return self._legal(_assigned(axes, choices, ()), sums)

    def _legal(self, tried: list[dict[int, Axes]], sums: tuple[Pending, ...]) -> list[Option]:
        found = [self.option(axes_of, sums) for axes_of in tried]
        return [o for o in found if o is not None]

    def option(self, axes_of: dict[int, Axes], sums: tuple[Pending, ...]) -> Option | None:
        """The option that splits factors so; None where it is not legal."""
        key = tuple(axes_of.items()), sums
        try:
            return self.options[key]
        except KeyError:
            pass
        layouts = self.layouts
        choice = legal_choice(layouts.mesh, self.info, self.shapes, self.sizes, axes_of, sums)
        option = None
        if choice is not None:
            numbers, pendings = layouts.numbers, itertools.repeat(choice.pending)
            tensors = zip(choice.layouts, itertools.chain(sums, pendings), strict=False)
            option = Option(choice if layouts.joint is None else layouts.spelled(choice),
                            tuple([numbers[t] for t in tensors]))
        self.options[key] = option
        return option


# -- enumeration -----------------------------------------------------------------------------------

def factors_of_axes(mesh: AbstractMesh, info: RuleInfo, where: dict[str, list[int]],
                    lacking: set[str], kept: Pending) -> tuple[tuple[str, ...], list[list[int]]]:
    """The axes in play, and the factors that are tried for each; -1 for none.

    where: per axis the factors that layouts give it to. lacking: axes that some tensor has not on
    the factor, or that have no factor or several. kept: axes over which operands are unfinished
    sums. An axis that passes through, and that all which could have it have, stays.
    """
    if info.has_other_kinds:
        passing = [f for f, factor in enumerate(info.factors)
                   if factor.kind == PASS and info.split_ok[f] and factor.size > 1]
        for a, factors in where.items():
            if any([info.factors[f].kind != PASS for f in factors]):
                # work along the factor while another dimension is split
                where[a] = sorted({*factors, *passing})
                lacking.add(a)
    axes = tuple([a for a in (mesh.sort_axes(where) if len(where) > 1 else where)
                  if a not in kept])
    choices = [[*[f for f in where[a] if info.split_ok[f]], *([-1] if a in lacking else ())]
               or [-1] for a in axes]
    while math.prod([len(c) for c in choices]) > _MOST_CANDIDATES:
        longest = max(choices, key=len)
        if len(longest) == 1:
            break
        del longest[-2 if len(longest) > 2 else -1]      # drop a factor, at last "no factor"
    return axes, choices


def _assigned(axes: Sequence[str], choices: Sequence[Sequence[int]], orders: tuple[Pair, ...]
              ) -> list[dict[int, Axes]]:
    """Axes of factors, for every way of taking one choice of each axis; axes that meet on a factor
    in an order that some tensor has.
    """
    found: list[dict[int, Axes]] = []
    if any([c[-1] >= 0 for c in choices]):
        found.append({})                    # in case that none of the others is possible
    for picks in itertools.product(*choices):
        sets: dict[int, Axes] = {}
        met = False
        for a, f in zip(axes, picks):  # noqa: B905 (speed)
            if f in sets:
                sets[f] += (a,)
                met = True
            elif f >= 0:
                sets[f] = (a,)
        if len(sets) > 1:
            sets = {f: sets[f] for f in sorted(sets)}
        if not met:
            found.append(sets)
            continue
        for combination in itertools.product(*[
                _orders(members, [order for g, order in orders if g == f])
                for f, members in sets.items()]):
            found.append(dict(zip(sets, combination, strict=True)))
    return found


def _orders(members: Axes, seen: Sequence[Axes]) -> list[Axes]:
    """Orders of these axes on a factor: those that tensors have, else one that extends one."""
    if len(members) == 1:
        return [members]
    exact = list(dict.fromkeys([s for s in seen if set(s) == set(members)]))
    if exact:
        return exact[:2]
    heads = [s for s in seen if set(s) <= set(members)]
    head = max(heads, key=len, default=())
    return [(*head, *(a for a in members if a not in head))]
