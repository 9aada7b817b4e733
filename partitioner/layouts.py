"""Layouts as numbers, and what it costs to bring a value from one to another.

A layout is where a value's dimensions are split, and the axes over which it is an unfinished sum. A
program has few of them, so they are told apart by number and every price is computed once.
"""
from __future__ import annotations

from typing import Any

from ..ir.mesh import AbstractMesh
from ..ir.types import ArrayType, Entries
from .choose import Layout, bridge

Held = tuple[int, ...]          # numbers of the layouts that a value is held in
_EMPTY: frozenset[str] = frozenset()


class Layouts:
    """Layouts as numbers, and the prices between them; shared by a program and those inside it."""

    def __init__(self, mesh: AbstractMesh) -> None:
        self.mesh = mesh
        self.numbers: dict[Layout, int] = {}
        self.homes: dict[ArrayType, int] = {}
        self.table: list[Layout] = []
        self.prices: dict[tuple, float] = {}
        self.gaps: dict[tuple, float] = {}
        self.memo: dict[tuple, Any] = {}        # answers about equations, by what they depend on

    def number(self, entries: Entries, pending: frozenset[str] = _EMPTY) -> int:
        layout = (entries, pending)
        n = self.numbers.get(layout)
        if n is None:
            n = self.numbers[layout] = len(self.table)
            self.table.append(layout)
        return n

    def of(self, aval: ArrayType) -> int:
        """The layout that a type says."""
        n = self.homes.get(aval)
        if n is None:
            n = self.homes[aval] = self.number(aval.entries, aval.sharding.spec.unreduced)
        return n

    def price(self, aval: ArrayType, source: int, target: int) -> float:
        if source == target:
            return 0.0
        key = (aval.shape, aval.dtype.itemsize, source, target)
        found = self.prices.get(key)
        if found is None:
            found = self.prices[key] = bridge(self.mesh, aval.shape, aval.dtype.itemsize,
                                              self.table[source], self.table[target])
        return found

    def nearest(self, aval: ArrayType, held: Held, target: int) -> tuple[float, int]:
        """(price, layout) of the cheapest source among those held."""
        if target in held:
            return 0.0, target
        if len(held) == 1:
            return self.price(aval, held[0], target), held[0]
        price, _, best = min((self.price(aval, h, target), k, h) for k, h in enumerate(held))
        return price, best

    def gap(self, aval: ArrayType, have: Held, want: Held) -> float:
        """The price of holding a value in all of `want` if it is held so."""
        key = (aval, have, want)
        found = self.gaps.get(key)
        if found is None:
            found = self.gaps[key] = sum(self.nearest(aval, have, n)[0] for n in want)
        return found
