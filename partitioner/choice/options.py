"""Options: what is tried of one rule (candidates.py) for values of certain sizes.

What is legal of it, in numbers of layouts, and at what price.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ..factors import RuleInfo
from .candidates import Way, ways_of
from .choose import Choice, Pending, legal_choice
from .layouts import UNIT, Held, Layouts
from .prices import FLOPS_PER_BYTE, WORK

_EMPTY: Pending = frozenset()
_FLOP, _WORK = UNIT // FLOPS_PER_BYTE, round(WORK * UNIT)


class Option:
    """A choice in numbers. needs: per operand the layout that it is taken in; results: the layouts
    that come out. price: in `UNIT`s. received, pending, choice: as of `Choice`, and the choice
    itself, which is made when it is asked for.
    """

    __slots__ = ("choice", "needs", "pending", "price", "received", "results", "sums", "table",
                 "way")

    choice: Choice

    def __init__(self, table: Table, way: Way, sums: tuple[Pending, ...], tensors: Held,
                 price: int, pending: Pending, received: int) -> None:
        count = table.count
        self.table, self.way, self.sums = table, way, sums
        self.needs, self.results = tensors[:count], tensors[count:]
        self.price, self.pending, self.received = price, pending, received

    def __getattr__(self, name: str) -> Choice:
        if name != "choice":
            raise AttributeError(name)
        table = self.table
        choice = table.choice(self.way, self.sums)
        assert choice is not None
        self.choice = choice = table.layouts.spelled(choice)
        return choice


class Table:
    """The options of one rule for values of certain kinds."""

    __slots__ = ("count", "flops", "found", "info", "kinds", "layouts", "lengths", "maps",
                 "options", "ranked", "ways", "whole", "wholes")

    def __init__(self, layouts: Layouts, info: RuleInfo, kinds: tuple[int, ...]) -> None:
        self.layouts, self.info, self.kinds = layouts, info, kinds
        self.ways = ways = ways_of(layouts, info)
        self.count = info.operands
        self.whole = (_EMPTY,) * self.count         # no operand is a sum
        maps, sizes = ways.maps, layouts.sizes
        self.maps: tuple[int, ...] = ()             # of each tensor
        self.ranked: tuple[tuple[int, int], ...] = ()   # (tensor, map) of those with dimensions
        self.wholes: tuple[tuple[int, int], ...] = ()   # (map, elements) of each
        for t, dims in enumerate(info.maps):
            m = maps[dims]
            self.maps += (m,)
            self.wholes += ((m, sizes[kinds[t]]),)
            if m >= 0:
                self.ranked += ((t, m),)
        # of a product, on one device; of others the elements of the largest block count
        self.flops = 2 * math.prod([f.size for f in info.factors]) if info.is_product else 0
        self.lengths: dict[int, set[int]] = {}      # of the dimensions that a factor has
        self.options: dict[tuple[Way, tuple[Pending, ...]], Option | None] = {}
        self.found: dict[tuple, list[Option]] = {}  # by what is given

    def suggested(self, hints: Sequence[Held], sums: tuple[Pending, ...]) -> list[Option]:
        """All legal options that these layouts of the tensors suggest."""
        ways = self.ways
        met = ways.met
        if met.order is not self.layouts.ordered:
            met = ways.meet()
        given = met.given
        has = lacks = 0
        for t, m in self.ranked:
            key = m, hints[t]
            mine = given[key] if key in given else ways.give(met, *key)
            has |= mine[0]
            lacks |= mine[1]
        wanted = has, has & lacks, sums
        if wanted in self.found:
            return self.found[wanted]
        kept = _EMPTY if sums == self.whole else _EMPTY.union(*sums)
        tried, orders = ways.tried(met, has, has & lacks, kept, [
            given[m, hints[t]] for t, m in self.ranked])
        by_orders = (*wanted, orders) if orders else wanted
        if by_orders in self.found:
            return self.found[by_orders]
        found: list[Option] = []
        options, simple = self.options, ways.simple
        for way in tried:
            key = way, sums
            if key not in options:
                options[key] = (self._priced if simple else self._looked_at)(*key)
            option = options[key]
            if option is not None:
                found.append(option)
        self.found[by_orders] = found
        return found

    def option(self, way: Way, sums: tuple[Pending, ...]) -> Option | None:
        """The option that splits factors so; None where it is not legal."""
        key = way, sums
        if key not in self.options:
            self.options[key] = (self._priced if self.ways.simple else self._looked_at)(*key)
        return self.options[key]

    def _looked_at(self, way: Way, sums: tuple[Pending, ...]) -> Option | None:
        choice = self.choice(way, sums)
        if choice is None:
            return None
        numbers, pending = self.layouts.numbers, itertools.repeat(choice.pending)
        tensors = zip(choice.layouts, itertools.chain(sums, pending), strict=False)
        return Option(self, way, sums, tuple([numbers[t] for t in tensors]),
                      round(choice.price * UNIT), choice.pending, choice.received)

    def _priced(self, way: Way, sums: tuple[Pending, ...]) -> Option | None:
        """What `legal_choice` and `prices.inside` would say of a way that is simple."""
        parts, lengths = way.parts, self.lengths
        for f in parts:
            if f not in lengths:
                shapes, kinds = self.layouts.shapes, self.kinds
                lengths[f] = {shapes[kinds[t]][0][d] for t, d, _ in self.info.spots[f]}
            for n in lengths[f]:
                if n % parts[f]:
                    return None
        cuts = way.cuts
        most = total = 0
        for m, n in self.wholes:
            n //= cuts[m]
            total += n
            if n > most:
                most = n
        if self.flops:
            most = self.flops // way.product
        entries, numbers, pending = way.layouts, self.layouts.numbers, way.pending
        if pending or sums != self.whole:
            pending = pending if sums == self.whole else pending.union(*sums)
            tensors = zip(self.maps, itertools.chain(sums, itertools.repeat(pending)), strict=False)
            held = [numbers[entries[m], axes] for m, axes in tensors]
        else:
            held = [numbers[entries[m], _EMPTY] for m in self.maps]
        return Option(self, way, sums, tuple(held), most * _FLOP + total * _WORK, pending, 0)

    def choice(self, way: Way, sums: tuple[Pending, ...]) -> Choice | None:
        """The choice that splits factors so, by the names of the layouts' mesh."""
        layouts = self.layouts
        shapes = [layouts.shapes[k] for k in self.kinds]
        return legal_choice(layouts.mesh, self.info, [shape for shape, _ in shapes],
                            [size for _, size in shapes], way.axes_of, sums)
