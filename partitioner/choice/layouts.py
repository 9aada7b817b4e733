"""Layouts, kinds of values, and the costs between them, as numbers.

A layout is how a value's dimensions are sharded, with the axes over which it is a partial sum; a
kind is a shape and an item size. A program has few of either, so they are numbered and each reshard
cost is computed once. Costs are at the prices of one objective (cost/prices.py): integers, so that
sums are exact.
"""
from __future__ import annotations

import math
import threading
from operator import itemgetter
from typing import Any

from ...ir.meshes.mesh import AbstractMesh
from ...ir.program import Program
from ...ir.support.caches import Cache, cached
from ...ir.types import ArrayType, Entries, Shape
from ..cost.prices import Price, Prices
from ..factors import Axes
from ..redistribution.joint_axes import JointAxes, Row, joint_axes
from .costs import Layout, PriceOf, Transfer, sum_cost, transfer

LayoutIds = tuple[int, ...]          # numbers of the layouts in which a value is available
# (layout, cost) for each layout in which readers prefer a value: the cost from there on, relative
# to the layout of its type. First perhaps (DEFERRED, share): the share, in 1024ths, of the cost of
# finishing a partial sum that is still to be paid if it is deferred.
Preference = tuple[tuple[int, int], ...]
DEFERRED, WHOLE_SHARE = -1, 1024
MOST_PREFERRED = 3                      # layouts in a preference, at most
MOST_HELD = 4                        # layouts of one value, at most
_EMPTY: frozenset[str] = frozenset()
_LOCK = threading.RLock()        # held while a number is assigned

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
        self.numbers = numbers = _Numbers()
        self.table, self.waiting, self.places = numbers.table, numbers.waiting, numbers.places
        self.homes = _TypeLayouts(numbers, self.joint)
        self.kinds_of = kinds = _Kinds()
        self.shapes, self.sizes = kinds.shapes, kinds.sizes
        self.costs = costs = _Costs(numbers, kinds.shapes, self.mesh, price, prices.times)
        self.moved = _ReshardCosts(costs)
        self.gaps = _CoverCosts(self.moved)
        self.expected = _ExpectedCosts(costs, numbers.waiting)
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
            with _LOCK:                                 # another thread may add some
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


class _Numbers(dict[Layout, int]):
    """The number of each layout, in the order in which they are first seen; `table` has the layouts
    by number. waiting: those that are unfinished sums. places: their axes, in the order of
    appearance. ordered: see `LayoutTable.order`.
    """
    __slots__ = ("ordered", "places", "table", "waiting")

    def __init__(self) -> None:
        self.table: list[Layout] = []
        self.waiting: set[int] = set()
        self.places: dict[str, int] = {}
        self.ordered: list[tuple[str, int]] | None = None

    def __missing__(self, layout: Layout) -> int:
        places, table = self.places, self.table
        with _LOCK:
            if layout not in self:
                self.ordered = None if any(
                    [a not in places for axes in layout[0] for a in axes]) else self.ordered
                for axes in layout[0]:
                    for a in axes:
                        places.setdefault(a, len(places))
                n = len(self)
                del table[n:]               # what an interrupt left
                (self.waiting.add if layout[1] else self.waiting.discard)(n)
                table.append(layout)
                self[layout] = n
        return self[layout]


class _TypeLayouts(dict[ArrayType, int]):
    """The number of the layout of each type."""
    __slots__ = ("joint", "numbers")

    def __init__(self, numbers: _Numbers, joint: JointAxes | None) -> None:
        self.numbers, self.joint = numbers, joint

    def __missing__(self, aval: ArrayType) -> int:
        joint, layout = self.joint, (aval.entries, aval.sharding.spec.unreduced)
        n = self[aval] = self.numbers[layout if joint is None else joint.in_joint_axes(*layout)]
        return n


class _Kinds(dict[ArrayType, int]):
    """The number of the kind (shape and item size) of each type. shapes: the kinds by number;
    sizes: their elements.
    """
    __slots__ = ("numbers", "shapes", "sizes")

    def __init__(self) -> None:
        self.numbers: dict[tuple[Shape, int], int] = {}
        self.shapes: list[tuple[Shape, int]] = []
        self.sizes: list[int] = []

    def __missing__(self, aval: ArrayType) -> int:
        numbers, key = self.numbers, (aval.shape, aval.dtype.itemsize)
        if key not in numbers:
            with _LOCK:
                if key not in numbers:
                    n = len(numbers)
                    del self.shapes[n:], self.sizes[n:]         # what an interrupt left
                    self.shapes.append(key)
                    self.sizes.append(math.prod(aval.shape))
                    numbers[key] = n
        n = self[aval] = numbers[key]
        return n


class _Costs(dict[tuple[int, int, int], int]):
    """The price of a reshard, by kind of value and the numbers of its two layouts. transfers: of
    changes of layout that finish no sum.
    """
    __slots__ = ("mesh", "numbers", "price", "shapes", "times", "transfers")

    def __init__(self, numbers: _Numbers, shapes: list[tuple[Shape, int]], mesh: AbstractMesh,
                 price: PriceOf, times: int) -> None:
        self.numbers, self.shapes, self.mesh = numbers, shapes, mesh
        self.price, self.times = price, times
        self.transfers: dict[tuple[int, int], Transfer] = {}

    def __missing__(self, key: tuple[int, int, int]) -> int:
        kind, source, target = key
        if source == target:
            self[key] = 0
            return 0
        numbers = self.numbers
        shape, itemsize = self.shapes[kind]
        have, want = numbers.table[source], numbers.table[target]
        if have[1] == want[1]:
            known = self.transfers.get(key[1:])
            if known is None:
                known = self.transfers[key[1:]] = transfer(self.price, self.mesh, have[0], want[0])
            found = known.of(shape, itemsize)
        else:
            times = self.times
            found = sum_cost(self.price, self.mesh, shape, itemsize, have, want,
                             lambda a, b: self[kind, numbers[a], numbers[b]] // times)
        self[key] = found = found * self.times
        return found


class Moves(dict[int, tuple[int, LayoutIds]]):
    """For a value available in some layouts: the cost of bringing it to another from the nearest,
    and the layouts in which it is available then.
    """
    __slots__ = ("costs", "held", "kind")

    def __init__(self, costs: _Costs, kind: int, held: LayoutIds) -> None:
        self.costs, self.kind, self.held = costs, kind, held

    def __missing__(self, need: int) -> tuple[int, LayoutIds]:
        held, kind, costs = self.held, self.kind, self.costs
        if need in held:
            found = 0, held
        elif len(held) != 1:
            found = (min([costs[kind, n, need] for n in held]),
                     with_layout(held, need) if held[MOST_HELD - 1:] else (*held, need))
        else:
            found = costs[kind, held[0], need], (*held, need)
        self[need] = found
        return found


class _ReshardCosts(dict[tuple[int, LayoutIds], Moves]):
    __slots__ = ("costs",)

    def __init__(self, costs: _Costs) -> None:
        self.costs = costs

    def __missing__(self, key: tuple[int, LayoutIds]) -> Moves:
        found = self[key] = Moves(self.costs, *key)
        return found


class _CoverCosts(dict[tuple[int, LayoutIds, LayoutIds], int]):
    __slots__ = ("moved",)

    def __init__(self, moved: _ReshardCosts) -> None:
        self.moved = moved

    def __missing__(self, key: tuple[int, LayoutIds, LayoutIds]) -> int:
        kind, have, want = key
        moved = self.moved[kind, have]
        found = 0
        for n in want:
            if n not in have:
                found += moved[n][0]
        self[key] = found
        return found


class ExpectedCost(dict[LayoutIds, int]):
    """The cost that is still expected for a value, by the layouts in which it is available,
    relative to the layout of its type alone. preference: what its readers prefer. waiting: the
    layouts that are unfinished sums.
    """
    __slots__ = ("costs", "home", "kind", "preference", "waiting")

    def __init__(self, costs: _Costs, waiting: set[int], kind: int, home: int,
                 preference: Preference) -> None:
        self.costs, self.waiting = costs, waiting
        self.kind, self.home, self.preference = kind, home, preference

    def __missing__(self, held: LayoutIds) -> int:
        if len(held) != 1:
            found = 0
            if self.preference or self.home not in held:
                found = self[held[:1]]
                for n in held[1:]:
                    other = self[n,]
                    if other < found:
                        found = other
        else:
            (layout,) = held
            kind, costs = self.kind, self.costs
            found = costs[kind, layout, self.home]
            for n, gain in self.preference:
                if n == DEFERRED:
                    if layout in self.waiting:
                        found = found * gain // WHOLE_SHARE
                elif n == layout:
                    if gain < found:
                        found = gain
                    break
                elif gain < found:              # a cost is never negative
                    there = costs[kind, layout, n] + gain
                    if there < found:
                        found = there
        self[held] = found
        return found

    # one per value of its kind, told apart by identity
    __hash__ = object.__hash__                  # type: ignore[assignment]
    __eq__ = object.__eq__


class _ExpectedCosts(dict[tuple[int, int, Preference], ExpectedCost]):
    __slots__ = ("costs", "waiting")

    def __init__(self, costs: _Costs, waiting: set[int]) -> None:
        self.costs, self.waiting = costs, waiting

    def __missing__(self, key: tuple[int, int, Preference]) -> ExpectedCost:
        return self.setdefault(key, ExpectedCost(self.costs, self.waiting, *key))


def with_layout(held: LayoutIds, layout: int) -> LayoutIds:
    """The layouts in which a value is available once it is brought to one more."""
    if layout in held:
        return held
    return (*held, layout) if len(held) < MOST_HELD else (held[0], *held[2:], layout)


def share_of(preference: Preference) -> int:
    return preference[0][1] if preference and preference[0][0] == DEFERRED else WHOLE_SHARE


def any_preferred(preferences: tuple[Preference, ...]) -> bool:
    """Do readers prefer any of these values finished, in another layout than its type's?"""
    for preference in preferences:
        if preference and preference[-1][0] != DEFERRED:
            return True
    return False


_shared = cached(8, "the layouts of programs on one mesh, and the costs between them")(
    TableHolder)
