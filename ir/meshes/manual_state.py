"""The state of a value over the Manual axes of its mesh: invarying, varying, or a pending sum."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..support.interning import Immutable, InternTable
from .mesh import AbstractMesh

_EMPTY: frozenset[str] = frozenset()
_states: InternTable[Any] = InternTable()
_known_state = _states.data.get


class ManualState(Immutable):
    """Over which Manual axes a value varies, is unreduced, or is reduced (disjoint sets).

    Users know it as `ManualAxisType`. Interned: equal sets give the same object.

    >>> from shardtrace.sharding import ManualAxisType
    >>> ManualAxisType(varying={"x"}, reduced={"y"}).to_ct_mat()
    ManualAxisType(varying={'x'}, unreduced={'y'}, reduced={})
    """

    __slots__ = ("__weakref__", "reduced", "unreduced", "varying")
    varying: frozenset[str]
    unreduced: frozenset[str]
    reduced: frozenset[str]

    def invarying(self, mesh: AbstractMesh) -> frozenset[str]:
        """The Manual axes of `mesh` in none of the three sets."""
        return frozenset(mesh.manual_axes) - (self.varying | self.unreduced | self.reduced)

    def __new__(cls, varying: Iterable[str] = _EMPTY, unreduced: Iterable[str] = _EMPTY,
                reduced: Iterable[str] = _EMPTY) -> ManualState:
        key = (frozenset(varying), frozenset(unreduced), frozenset(reduced))
        entry = _known_state(key)
        self = None if entry is None else entry()
        if self is None:
            for name, other in (("unreduced", key[1]), ("reduced", key[2])):
                if key[0] & other:
                    raise ValueError(
                        f"varying and {name} cannot have common mesh axes. Got varying="
                        f"{set_text(key[0])} and {name}={set_text(other)}")
            if key[1] & key[2]:
                raise ValueError("unreduced and reduced cannot have common mesh axes. Got "
                                 f"unreduced={set_text(key[1])} and reduced={set_text(key[2])}")
            new = object.__new__(ManualState)
            put = object.__setattr__
            put(new, "varying", key[0])
            put(new, "unreduced", key[1])
            put(new, "reduced", key[2])
            self = _states.add(key, new)
        return self

    @property
    def empty(self) -> bool:
        """Whether it says nothing."""
        return self is NOT_MANUAL

    def update(self, **changes: Iterable[str]) -> ManualState:
        """This state with some of its sets replaced."""
        sets = {"varying": self.varying, "unreduced": self.unreduced, "reduced": self.reduced}
        return ManualState(**{**sets, **changes})

    def to_ct_mat(self) -> ManualState:
        """The state of the cotangent: unreduced and reduced change places."""
        return ManualState(self.varying, self.reduced, self.unreduced)

    def __bool__(self) -> bool:
        return self is not NOT_MANUAL

    def __reduce__(self):
        return ManualState, (self.varying, self.unreduced, self.reduced)

    def __repr__(self) -> str:
        return (f"ManualAxisType(varying={set_text(self.varying)}, "
                f"unreduced={set_text(self.unreduced)}, reduced={set_text(self.reduced)})")


def set_text(names: Iterable[str]) -> str:
    """Axes as Python writes a set of them, in order."""
    return "{" + ", ".join(repr(n) for n in sorted(names)) + "}"


NOT_MANUAL = ManualState()
ManualAxisType = ManualState
"""The name by which users know it."""
