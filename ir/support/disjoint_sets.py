"""Disjoint sets of anything hashable. (networkx has them too, and takes 0.2 s to load.)"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class DisjointSets(Generic[T]):
    """Elements are each in a set of their own until they are joined.

    >>> sets = DisjointSets()
    >>> sets.join("a", "b", "c")
    >>> sets.of("c") == sets.of("a"), sets.of("d")
    (True, 'd')
    """

    def __init__(self) -> None:
        self._leader: dict[T, T] = {}

    def of(self, x: T) -> T:
        """The element that stands for the set of x."""
        leader = self._leader
        above = leader.get(x, x)
        while above != x:
            further = leader.get(above, above)
            leader[x], x, above = further, above, further
        return x

    def join(self, *elements: T) -> None:
        """The sets of these elements become one, for which what stood for the first one's stands.
        """
        first = self.of(elements[0])
        for x in elements[1:]:
            other = self.of(x)
            if other != first:
                self._leader[other] = first

    def groups(self, elements: Iterable[T]) -> list[list[T]]:
        """These elements set by set, in their order."""
        found: dict[T, list[T]] = {}
        for x in elements:
            found.setdefault(self.of(x), []).append(x)
        return list(found.values())
