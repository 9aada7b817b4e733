"""The layouts of the values of a mesh, by number, and what is known about them.

A `LayoutTable` joins the tables of layout_costs.py for one mesh and the prices of one objective
(cost/prices.py); prices are integers, so that sums are exact. Programs on the same mesh share it
(`layouts_for`), with the answers about equations that the search has worked out for earlier ones.
"""
from __future__ import annotations

from operator import itemgetter
from typing import Any

from ...ir.program import Program
from ...ir.support.caches import Cache, cached
from ...ir.types import Entries
from ..cost.prices import Price, Prices
from ..factors import Axes
from ..redistribution.joint_axes import JointAxes, Row, joint_axes
from .costs import PriceOf
from .layout_costs import (
    DEFERRED,
    LOCK,
    MOST_PREFERRED,
    WHOLE_SHARE,
    Costs,
    CoverCosts,
    ExpectedCosts,
    Kinds,
    LayoutIds,
    Numbers,
    Preference,
    ReshardCosts,
    TypeLayouts,
    share_of,
)

# What is worked out for a program is kept for the next one on the same mesh, up to a number of
# answers, and not for programs with more equations than that.
_TABLES = Cache("partitioner.choice.layouts.LayoutTable.memo",
                "answers about the equations of programs on one mesh", 8192)


def layouts_for(program: Program, prices: Prices) -> TableHolder:
    """The table for a program's mesh at these prices, shared with other programs on the mesh, for
    as long as its holder is referred to.
    """
    if prices.mesh is not program.mesh:
        prices = prices.on(program.mesh)
    rows = joint_axes(program)
    if len(program.eqns) > _TABLES.most:
        return TableHolder(prices, rows)
    found = _shared(prices, rows)
    if len(found.layouts.memo) > _TABLES.most:
        _shared.cache_clear()
        return _shared(prices, rows)
    return found


class Answer:
    """An answer in the memo of a table, with answers of its own that refer to it in turn."""

    __slots__ = ()

    def forget(self) -> None:
        """Drop these."""
        raise NotImplementedError


class TableHolder:
    """Whoever uses a table refers to its holder. The answers in the memo refer to the table; they
    are dropped with the holder. So all goes with the last reference, and the garbage collector need
    not walk through some million objects to find them unreachable.
    """

    __slots__ = ("layouts",)

    def __init__(self, prices: Prices, rows: tuple[Row, ...] = ()) -> None:
        self.layouts = LayoutTable(prices, rows)

    def __del__(self, kind: type[Answer] = Answer) -> None:    # which a module that ends has lost
        memo = self.layouts.memo
        for answer in list(memo.values()):
            if isinstance(answer, kind):
                answer.forget()
        memo.clear()


class LayoutTable:
    """The numbers of one mesh, and the costs between them; shared by programs (`layouts_for`).

    rows: axes of it that always go together; they are one axis of `mesh` (joint_axes.py), and
    `joint` knows both names. Tables compute entries on demand: numbers: of layouts; homes,
    kinds_of: layout and kind of a type; costs: by (kind, source, target); moved: by (kind, layouts
    held), how a value comes to other layouts (`Moves`); gaps: by (kind, held, wanted), the cost of
    having a value in all wanted layouts; expected: by (kind, home, preference), the expected cost
    (`ExpectedCost`). Each refers to those that it asks, and none to this object. memo: answers
    about equations, by what they depend on; many refer to the table (see `TableHolder`).
    """

    __slots__ = ("costs", "expected", "gaps", "homes", "joint", "kinds_of", "memo", "mesh", "moved",
                 "numbers", "places", "price", "prices", "shapes", "sizes", "table", "waiting")

    def __init__(self, prices: Prices, rows: tuple[Row, ...] = ()) -> None:
        self.prices = prices
        self.joint = JointAxes(prices.mesh, rows) if rows else None
        self.mesh = prices.mesh if self.joint is None else self.joint.mesh
        price = prices.exchange if self.joint is None else _Spelled(prices, self.joint).price
        self.price: PriceOf = price         # of a collective over axes of `mesh`
        self.numbers = numbers = Numbers()
        self.table, self.waiting, self.places = numbers.table, numbers.waiting, numbers.places
        self.homes = TypeLayouts(numbers, self.joint)
        self.kinds_of = kinds = Kinds()
        self.shapes, self.sizes = kinds.shapes, kinds.sizes
        self.costs = costs = Costs(numbers, kinds.shapes, self.mesh, price, prices.times)
        self.moved = ReshardCosts(costs)
        self.gaps = CoverCosts(self.moved)
        self.expected = ExpectedCosts(costs, numbers.waiting)
        self.memo: dict[Any, Any] = {}

    def named(self, entries: Entries, pending: frozenset[str]) -> int:
        """The number of a layout, given with the program's axis names."""
        joint = self.joint
        layout = (entries, pending)
        return self.numbers[layout if joint is None else joint.in_joint_axes(*layout)]

    def order(self) -> list[tuple[str, int]]:
        """(axis, its place) of all axes of layouts up to now, as in the mesh."""
        numbers = self.numbers
        found = numbers.ordered
        if found is None:
            with LOCK:                                 # another thread may add some
                places = self.places
                found = numbers.ordered = [(a, places[a]) for a in self.mesh.sort_axes(places)]
        return found

    def nearest(self, kind: int, held: LayoutIds, target: int) -> tuple[int, int]:
        """(cost, layout) of the cheapest source among the layouts held."""
        if target in held:
            return 0, target
        costs = self.costs
        best = held[0]
        cost = costs[kind, best, target]
        for n in held[1:]:
            other = costs[kind, n, target]
            if other < cost:
                cost, best = other, n
        return cost, best

    def left_after(self, amount: int, kind: int, source: int, target: int, home: int) -> int:
        """What is left of `amount` after a reshard; negative if it does not suffice.

        The cost between sums over different axes takes a plan; none is made if the amount covers
        the detour over `home`.
        """
        costs = self.costs
        pending, other = self.table[source][1], self.table[target][1]
        if not (other <= pending or pending <= other):
            by_home = costs[kind, source, home] + costs[kind, home, target]
            if by_home <= amount:
                return amount - by_home
        return amount - costs[kind, source, target]

    def combined_preference(self, kind: int, home: int, first: Preference, second: Preference,
                            all_of_them: bool) -> Preference:
        """The preference that serves the readers of both; a value is resharded once for all of
        them.

        all_of_them: keep layouts that gain nothing over resharding the value back.
        """
        key = ("preference", kind, home, first, second, all_of_them)
        found = self.memo.get(key)
        if found is None:
            ranked, costs = [], self.costs
            one, other = self.expected[kind, home, first], self.expected[kind, home, second]
            seen: tuple[int, ...] = ()
            for n, _ in (*first, *second):
                if n >= 0 and n not in seen:
                    seen += (n,)
                    back, there = costs[kind, n, home], costs[kind, home, n]
                    gain = one[n,] + other[n,]
                    if gain < -there:
                        gain = -there
                    if gain < back or all_of_them:
                        gain = gain if gain < back else back
                        ranked.append((gain + there, n, gain))
            if len(ranked) > 1:
                ranked.sort(key=itemgetter(0))          # numbers depend on earlier programs
            share = share_of(first) + share_of(second)
            found = self.memo[key] = (*(((DEFERRED, share),) if share < WHOLE_SHARE else ()),
                                      *[(n, gain) for _, n, gain in ranked[:MOST_PREFERRED]])
        return found


class _Spelled:
    """Prices of collectives over joint axes."""

    __slots__ = ("joint", "prices")

    def __init__(self, prices: Prices, joint: JointAxes) -> None:
        self.prices, self.joint = prices, joint

    def price(self, kind: str, axes: Axes) -> Price:
        return self.prices.exchange(kind, self.joint.spelled(axes))


_shared = cached(8, "the layouts of programs on one mesh, and the costs between them")(
    TableHolder)
