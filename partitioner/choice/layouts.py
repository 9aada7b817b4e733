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
from typing import Any, TypeVar

from ...ir.program import Program
from ...ir.support.caches import Cache, cached
from ...ir.types import ArrayType, Entries, Shape
from ..cost.prices import Price, Prices
from ..factors import Axes
from ..redistribution.joint_axes import JointAxes, Row, joint_axes
from .costs import Layout, Transfer, sum_cost, transfer

LayoutIds = tuple[int, ...]          # numbers of the layouts in which a value is available
# (layout, cost) for each layout in which readers prefer a value: the cost from there on, relative
# to the layout of its type. First perhaps (DEFERRED, share): the share, in 1024ths, of the cost of
# finishing a partial sum that is still to be paid if it is deferred.
Preference = tuple[tuple[int, int], ...]
DEFERRED, WHOLE_SHARE = -1, 1024
MOST_PREFERRED = 3                      # layouts in a preference, at most
MOST_HELD = 4                        # layouts of one value, at most
_EMPTY: frozenset[str] = frozenset()
Key = TypeVar("Key")
Found = TypeVar("Found")
_LOCK = threading.RLock()        # held while a number is assigned

# What is worked out for a program is kept for the next one on the same mesh, up to a number of
# answers, and not for programs with more equations than that.
_TABLES = Cache("partitioner.choice.layouts.LayoutTable.memo",
                "answers about the equations of programs on one mesh", 8192)


def layouts_for(program: Program, prices: Prices) -> LayoutTable:
    """The table for a program's mesh at these prices, shared with other programs on the mesh."""
    if prices.mesh is not program.mesh:
        prices = prices.on(program.mesh)
    rows = joint_axes(program)
    if len(program.eqns) > _TABLES.most:
        return LayoutTable(prices, rows)
    found = _shared(prices, rows)
    if len(found.memo) > _TABLES.most:
        _shared.cache_clear()
        return _shared(prices, rows)
    return found


class LayoutTable:
    """The numbers of one mesh, and the costs between them; shared by programs (`layouts_for`).

    rows: axes of it that always go together; they are one axis of `mesh` (joint_axes.py), and
    `joint` knows both names. Tables compute entries on demand: numbers: of layouts; homes,
    kinds_of: layout and kind of a type; costs: by (kind, source, target); moved: by (kind, layouts
    held), how a value comes to other layouts (`Moves`); gaps: by (kind, held, wanted), the cost of
    having a value in all wanted layouts; expected: by (kind, home, preference), the expected cost
    (`ExpectedCost`). memo: answers about equations, by what they depend on.
    """

    __slots__ = ("expected", "gaps", "homes", "joint", "kinds", "kinds_of", "memo", "mesh", "moved",
                 "numbers", "ordered", "places", "costs", "prices", "shapes", "sizes", "table",
                 "transfers", "waiting")

    def __init__(self, prices: Prices, rows: tuple[Row, ...] = ()) -> None:
        self.prices = prices
        self.joint = JointAxes(prices.mesh, rows) if rows else None
        self.mesh = prices.mesh if self.joint is None else self.joint.mesh
        self.table: list[Layout] = []
        self.waiting: set[int] = set()              # layouts that are unfinished sums
        self.places: dict[str, int] = {}            # axes of layouts, in the order of appearance
        self.ordered: list[tuple[str, int]] | None = None       # see `order`
        self.kinds: dict[tuple[Shape, int], int] = {}
        self.shapes: list[tuple[Shape, int]] = []
        self.sizes: list[int] = []                  # elements of each kind
        self.numbers = _Numbers(self)
        self.homes = _TypeLayouts(self)
        self.kinds_of = _Kinds(self)
        self.costs = _Costs(self)
        self.transfers = _Transfers(self)
        self.moved = _ReshardCosts(self)
        self.gaps = _CoverCosts(self)
        self.expected = _ExpectedCosts(self)
        self.memo: dict[Any, Any] = {}

    def named(self, entries: Entries, pending: frozenset[str]) -> int:
        """The number of a layout, given with the program's axis names."""
        joint = self.joint
        layout = (entries, pending)
        return self.numbers[layout if joint is None else joint.in_joint_axes(*layout)]

    def price(self, kind: str, axes: Axes) -> Price:
        """The price of a collective over axes of `mesh`."""
        return self.prices.exchange(kind, axes if self.joint is None else self.joint.spelled(axes))

    def order(self) -> list[tuple[str, int]]:
        """(axis, its place) of all axes of layouts up to now, as in the mesh."""
        found = self.ordered
        if found is None:
            with _LOCK:                                 # another thread may add some
                places = self.places
                found = self.ordered = [(a, places[a]) for a in self.mesh.sort_axes(places)]
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


class _Answers(dict[Key, Found]):
    """A table of answers about layout numbers; `__missing__` works each out once."""

    __slots__ = ("layouts",)

    def __init__(self, layouts: LayoutTable) -> None:
        super().__init__()
        self.layouts = layouts


class _Numbers(_Answers[Layout, int]):
    """The number of each layout, in the order in which they are first seen."""
    __slots__ = ()

    def __missing__(self, layout: Layout) -> int:
        layouts = self.layouts
        places, table = layouts.places, layouts.table
        with _LOCK:
            if layout not in self:
                layouts.ordered = None if any(
                    [a not in places for axes in layout[0] for a in axes]) else layouts.ordered
                for axes in layout[0]:
                    for a in axes:
                        places.setdefault(a, len(places))
                n = len(self)
                del table[n:]               # what an interrupt left
                (layouts.waiting.add if layout[1] else layouts.waiting.discard)(n)
                table.append(layout)
                self[layout] = n
        return self[layout]


class _TypeLayouts(_Answers[ArrayType, int]):
    """The number of the layout of each type."""
    __slots__ = ()

    def __missing__(self, aval: ArrayType) -> int:
        n = self[aval] = self.layouts.named(aval.entries, aval.sharding.spec.unreduced)
        return n


class _Kinds(_Answers[ArrayType, int]):
    """The number of the kind (shape and item size) of each type."""
    __slots__ = ()

    def __missing__(self, aval: ArrayType) -> int:
        layouts, key = self.layouts, (aval.shape, aval.dtype.itemsize)
        if key not in layouts.kinds:
            with _LOCK:
                if key not in layouts.kinds:
                    n = len(layouts.kinds)
                    del layouts.shapes[n:], layouts.sizes[n:]       # what an interrupt left
                    layouts.shapes.append(key)
                    layouts.sizes.append(math.prod(aval.shape))
                    layouts.kinds[key] = n
        n = self[aval] = layouts.kinds[key]
        return n


class _Costs(_Answers[tuple[int, int, int], int]):
    """The price of a reshard, by kind of value and the numbers of its two layouts."""
    __slots__ = ()

    def __missing__(self, key: tuple[int, int, int]) -> int:
        kind, source, target = key
        if source == target:
            self[key] = 0
            return 0
        layouts = self.layouts
        times = layouts.prices.times
        shape, itemsize = layouts.shapes[kind]
        have, want = layouts.table[source], layouts.table[target]
        if have[1] == want[1]:
            found = layouts.transfers[source, target].of(shape, itemsize)
        else:
            numbers = layouts.numbers
            found = sum_cost(layouts.price, layouts.mesh, shape, itemsize, have, want,
                             lambda a, b: self[kind, numbers[a], numbers[b]] // times)
        self[key] = found = found * times
        return found


class _Transfers(_Answers[tuple[int, int], Transfer]):
    """The prices of changes of layout that finish no sum."""
    __slots__ = ()

    def __missing__(self, key: tuple[int, int]) -> Transfer:
        layouts = self.layouts
        (have, _), (want, _) = (layouts.table[n] for n in key)
        found = self[key] = transfer(layouts.price, layouts.mesh, have, want)
        return found


class Moves(_Answers[int, tuple[int, LayoutIds]]):
    """For a value available in some layouts: the cost of bringing it to another from the nearest,
    and the layouts in which it is available then.
    """
    __slots__ = ("held", "kind")

    def __init__(self, layouts: LayoutTable, kind: int, held: LayoutIds) -> None:
        super().__init__(layouts)
        self.kind, self.held = kind, held

    def __missing__(self, need: int) -> tuple[int, LayoutIds]:
        held, kind, costs = self.held, self.kind, self.layouts.costs
        if need in held:
            found = 0, held
        elif len(held) != 1:
            found = (min([costs[kind, n, need] for n in held]),
                     with_layout(held, need) if held[MOST_HELD - 1:] else (*held, need))
        else:
            found = costs[kind, held[0], need], (*held, need)
        self[need] = found
        return found


class _ReshardCosts(_Answers[tuple[int, LayoutIds], Moves]):
    __slots__ = ()

    def __missing__(self, key: tuple[int, LayoutIds]) -> Moves:
        found = self[key] = Moves(self.layouts, *key)
        return found


class _CoverCosts(_Answers[tuple[int, LayoutIds, LayoutIds], int]):
    __slots__ = ()

    def __missing__(self, key: tuple[int, LayoutIds, LayoutIds]) -> int:
        kind, have, want = key
        moved = self.layouts.moved[kind, have]
        found = 0
        for n in want:
            if n not in have:
                found += moved[n][0]
        self[key] = found
        return found


class ExpectedCost(_Answers[LayoutIds, int]):
    """The cost that is still expected for a value, by the layouts in which it is available,
    relative to the layout of its type alone. preference: what its readers prefer.
    """
    __slots__ = ("preference", "home", "kind")

    def __init__(self, layouts: LayoutTable, kind: int, home: int, preference: Preference) -> None:
        super().__init__(layouts)
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
            kind, costs = self.kind, self.layouts.costs
            found = costs[kind, layout, self.home]
            for n, gain in self.preference:
                if n == DEFERRED:
                    if layout in self.layouts.waiting:
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


class _ExpectedCosts(_Answers[tuple[int, int, Preference], ExpectedCost]):
    __slots__ = ()

    def __missing__(self, key: tuple[int, int, Preference]) -> ExpectedCost:
        return self.setdefault(key, ExpectedCost(self.layouts, *key))


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


_shared = cached(8)(LayoutTable)
