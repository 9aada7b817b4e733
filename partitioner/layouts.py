"""Layouts, kinds of values and prices as whole numbers.

A layout is where a value's dimensions are split, and the axes over which it is an unfinished sum; a
kind is a shape and the bytes of an element. A program has few of either, so they are told apart by
number and every price between two layouts is computed once. Prices are whole numbers of `UNIT`s of
a byte: sums of them are exact, so that two programs that cost the same are known to.
"""
from __future__ import annotations

import functools
import math
import threading
from typing import Any

from ..ir.mesh import AbstractMesh
from ..ir.program import Program
from ..ir.types import ArrayType, Entries, Shape
from .choose import Choice, Layout, bridge
from .joint_axes import Joined, Row, joint_axes
from .prices import EXCHANGE
from .redistribute import Share, share_received

Held = tuple[int, ...]          # numbers of the layouts that a value is held in, its own first
# What readers are expected to gain, per layout that they would like a value in: its price from then
# on, less that of having it as its type says. First perhaps (WAITS, share of what it costs to
# finish a sum that is expected to be paid if it waits, in 1024 parts).
Goal = tuple[tuple[int, int], ...]
WAITS, ALL = -1, 1024
WANTED = 3                      # layouts of a goal
UNIT = 10 ** 9                  # in a byte
_EMPTY: frozenset[str] = frozenset()
_NO_SHARE: Share = ((), 0, 0)
_LOCK = threading.Lock()        # while a number is given

# What is found out about programs is kept for the next one on the same mesh, but not for ever: of
# so many equations, and of no longer program than this.
_KEPT, _LONGEST = 20_000, 2_000


def layouts_for(program: Program) -> Layouts:
    """The numbers of a program's mesh."""
    mesh, rows, equations = program.mesh, joint_axes(program), len(program.eqns)
    if equations > _LONGEST:
        return Layouts(mesh, rows)
    found = _shared(mesh, rows)
    found.served += equations
    if found.served > _KEPT:
        _shared.cache_clear()
    return found


def forget_layouts() -> None:
    """Start afresh with the next program."""
    _shared.cache_clear()


class Layouts:
    """The numbers of one mesh, and the prices between them; shared by programs (`layouts_for`).

    rows: axes of it that go together; they are one axis of `mesh` (joint_axes.py), and `joint`
    knows both names. memo: answers about equations, by what they depend on. served: equations
    asked about.
    """

    __slots__ = ("aheads", "gaps", "homes", "joint", "kinds", "kinds_of", "memo", "mesh", "numbers",
                 "prices", "served", "shapes", "shares", "table")

    def __init__(self, mesh: AbstractMesh, rows: tuple[Row, ...] = ()) -> None:
        self.joint = Joined(mesh, rows) if rows else None
        self.mesh = mesh if self.joint is None else self.joint.mesh
        self.numbers: dict[Layout, int] = {}
        self.table: list[Layout] = []
        self.homes: dict[ArrayType, int] = {}
        self.kinds: dict[tuple[Shape, int], int] = {}
        self.kinds_of: dict[ArrayType, int] = {}
        self.shapes: list[tuple[Shape, int]] = []
        self.prices: dict[tuple[int, int, int], int] = {}
        self.shares: dict[tuple[int, int], Share] = {}
        self.gaps: dict[tuple[int, Held, Held], int] = {}
        self.aheads: dict[tuple[int, int, Goal, Held], int] = {}
        self.memo: dict[Any, Any] = {}
        self.served = 0

    def number(self, entries: Entries, pending: frozenset[str] = _EMPTY) -> int:
        layout = (entries, pending)
        n = self.numbers.get(layout)
        if n is None:
            with _LOCK:
                n = self.numbers.get(layout)
                if n is None:
                    self.table.append(layout)
                    n = self.numbers[layout] = len(self.table) - 1
        return n

    def of(self, aval: ArrayType) -> int:
        """The layout that a type says."""
        n = self.homes.get(aval)
        if n is None:
            n = self.homes[aval] = self.named(aval.entries, aval.sharding.spec.unreduced)
        return n

    def named(self, entries: Entries, pending: frozenset[str]) -> int:
        """The number of a layout by the names that the program has for axes."""
        joint = self.joint
        return self.number(entries, pending) if joint is None else self.number(
            *joint.joined(entries, pending))

    def spelled(self, choice: Choice) -> Choice:
        """A choice by the names that the program has for axes."""
        joint = self.joint
        if joint is None:
            return choice
        spelled = joint.spelled
        return Choice({f: spelled(axes) for f, axes in choice.axes_of.items()},
                      tuple([tuple(map(spelled, entries)) for entries in choice.layouts]),
                      tuple([frozenset(spelled(sums)) for sums in choice.sums]),
                      frozenset(spelled(choice.pending)),
                      tuple([(reducer, spelled(axes)) for reducer, axes in choice.finish]),
                      choice.price, choice.received)

    def kind(self, aval: ArrayType) -> int:
        """The number of a type's shape and size of an element."""
        n = self.kinds_of.get(aval)
        if n is None:
            key = aval.shape, aval.dtype.itemsize
            with _LOCK:
                n = self.kinds.get(key)
                if n is None:
                    self.shapes.append(key)
                    n = self.kinds[key] = len(self.shapes) - 1
            self.kinds_of[aval] = n
        return n

    def bytes(self, kind: int) -> int:
        shape, itemsize = self.shapes[kind]
        return math.prod(shape) * itemsize

    def price(self, kind: int, source: int, target: int) -> int:
        if source == target:
            return 0
        key = (kind, source, target)
        found = self.prices.get(key)
        if found is None:
            shape, itemsize = self.shapes[kind]
            least = self._least(source, target, shape)
            if least is None:
                price = bridge(self.mesh, shape, itemsize, self.table[source], self.table[target])
            else:
                price = least * itemsize + EXCHANGE * (least > 0)
            found = self.prices[key] = round(price * UNIT)
        return found

    def _least(self, source: int, target: int, shape: Shape) -> int | None:
        """Elements received between two layouts, where that is a share that holds for all shapes
        which both divide; None elsewhere, and where sums are finished.
        """
        known = self.shares.get((source, target))
        if known is None:
            (have, pending), (want, other) = self.table[source], self.table[target]
            share = share_received(self.mesh, have, want) if pending == other else None
            known = self.shares[source, target] = share or _NO_SHARE
        units, parts, common = known
        for n, unit in zip(shape, units):  # noqa: B905 (speed)
            if n % unit:
                return None
        if not parts:
            return None
        whole = math.prod(shape)
        return whole // parts - (whole // common if common else 0)

    def nearest(self, kind: int, held: Held, target: int) -> tuple[int, int]:
        """(price, layout) of the cheapest source among those held."""
        if target in held:
            return 0, target
        if len(held) == 1:
            return self.price(kind, held[0], target), held[0]
        price, _, best = min([(self.price(kind, h, target), k, h) for k, h in enumerate(held)])
        return price, best

    def gap(self, kind: int, have: Held, want: Held) -> int:
        """The price of holding a value in all of `want` if it is held so."""
        key = (kind, have, want)
        found = self.gaps.get(key)
        if found is None:
            found = self.gaps[key] = sum([self.nearest(kind, have, n)[0] for n in want])
        return found

    def ahead(self, kind: int, home: int, goal: Goal, held: Held) -> int:
        """What is expected to be paid for a value from now on, where it is held so, less what it is
        where it is held as its type says. goal: what readers would like.
        """
        if not goal and home in held:
            return 0
        key = (kind, home, goal, held)
        found = self.aheads.get(key)
        if found is None:
            found = self.aheads[key] = min([self._ahead(kind, home, goal, n) for n in held])
        return found

    def _ahead(self, kind: int, home: int, goal: Goal, layout: int) -> int:
        least = self.price(kind, layout, home)
        for n, gain in goal:
            if n == WAITS:
                if self.table[layout][1]:
                    least = least * gain // ALL
            elif n == layout:
                return min(gain, least)
            else:
                least = min(least, self.price(kind, layout, n) + gain)
        return least

    def together(self, kind: int, home: int, first: Goal, second: Goal, all_of_them: bool
                 ) -> Goal:
        """What the readers of two goals like; a value is brought once to what both of them like.

        all_of_them: also what gains nothing over bringing the value back.
        """
        key = ("goal", kind, home, first, second, all_of_them)
        found = self.memo.get(key)
        if found is None:
            ranked = []
            for n in dict.fromkeys([n for n, _ in (*first, *second) if n >= 0]):
                back, there = self.price(kind, n, home), self.price(kind, home, n)
                gain = self._ahead(kind, home, first, n) + self._ahead(kind, home, second, n)
                gain = max(gain, -there)
                if gain < back or all_of_them:
                    ranked.append((min(gain, back) + there, n, min(gain, back)))
            ranked.sort()
            share = share_of(first) + share_of(second)
            found = self.memo[key] = (*(((WAITS, share),) if share < ALL else ()),
                                      *[(n, gain) for _, n, gain in ranked[:WANTED]])
        return found


def share_of(goal: Goal) -> int:
    return goal[0][1] if goal and goal[0][0] == WAITS else ALL


def likes(goals: tuple[Goal, ...]) -> bool:
    """Would readers like any of these values otherwise than its type says, finished?"""
    for goal in goals:
        if goal and goal[-1][0] != WAITS:
            return True
    return False


_shared = functools.lru_cache(maxsize=8)(Layouts)
