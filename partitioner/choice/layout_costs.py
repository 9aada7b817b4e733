"""Numbers of layouts and of kinds of values, and tables of the costs between layouts.

A layout is how a value's dimensions are sharded, with the axes over which it is a partial sum; a
kind is a shape and an item size. A program has few of either, so they are numbered, in the order in
which they are met, and each cost is computed once: the tables are dicts that work out an entry when
it is first read. From the bottom up: `Costs` of one reshard, `ReshardCosts` from several layouts in
which a value is available, `CoverCosts` of having it in all that are wanted, and `ExpectedCosts`
with what its readers prefer. Each refers only to those below it.
"""
from __future__ import annotations

import math
import threading

from ...ir.meshes.mesh import AbstractMesh
from ...ir.types import ArrayType, Shape
from ..redistribution.joint_axes import JointAxes
from .costs import Layout, PriceOf, Transfer, sum_cost, transfer

LayoutIds = tuple[int, ...]          # numbers of the layouts in which a value is available
# (layout, cost) for each layout in which readers prefer a value: the cost from there on, relative
# to the layout of its type. First perhaps (DEFERRED, share): the share, in 1024ths, of the cost of
# finishing a partial sum that is still to be paid if it is deferred.
Preference = tuple[tuple[int, int], ...]
DEFERRED, WHOLE_SHARE = -1, 1024
MOST_PREFERRED = 3                      # layouts in a preference, at most
MOST_HELD = 4                           # layouts of one value, at most
LOCK = threading.RLock()                # held while a number is assigned


class Numbers(dict[Layout, int]):
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
        with LOCK:
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


class TypeLayouts(dict[ArrayType, int]):
    """The number of the layout of each type."""
    __slots__ = ("joint", "numbers")

    def __init__(self, numbers: Numbers, joint: JointAxes | None) -> None:
        self.numbers, self.joint = numbers, joint

    def __missing__(self, aval: ArrayType) -> int:
        joint, layout = self.joint, (aval.entries, aval.sharding.spec.unreduced)
        n = self[aval] = self.numbers[layout if joint is None else joint.in_joint_axes(*layout)]
        return n


class Kinds(dict[ArrayType, int]):
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
            with LOCK:
                if key not in numbers:
                    n = len(numbers)
                    del self.shapes[n:], self.sizes[n:]         # what an interrupt left
                    self.shapes.append(key)
                    self.sizes.append(math.prod(aval.shape))
                    numbers[key] = n
        n = self[aval] = numbers[key]
        return n


class Costs(dict[tuple[int, int, int], int]):
    """The price of a reshard, by kind of value and the numbers of its two layouts. transfers: of
    changes of layout that finish no sum.
    """
    __slots__ = ("mesh", "numbers", "price", "shapes", "times", "transfers")

    def __init__(self, numbers: Numbers, shapes: list[tuple[Shape, int]], mesh: AbstractMesh,
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

    def __init__(self, costs: Costs, kind: int, held: LayoutIds) -> None:
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


class ReshardCosts(dict[tuple[int, LayoutIds], Moves]):
    __slots__ = ("costs",)

    def __init__(self, costs: Costs) -> None:
        self.costs = costs

    def __missing__(self, key: tuple[int, LayoutIds]) -> Moves:
        found = self[key] = Moves(self.costs, *key)
        return found


class CoverCosts(dict[tuple[int, LayoutIds, LayoutIds], int]):
    __slots__ = ("moved",)

    def __init__(self, moved: ReshardCosts) -> None:
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

    def __init__(self, costs: Costs, waiting: set[int], kind: int, home: int,
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


class ExpectedCosts(dict[tuple[int, int, Preference], ExpectedCost]):
    __slots__ = ("costs", "waiting")

    def __init__(self, costs: Costs, waiting: set[int]) -> None:
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
