"""Interning: equal construction gives the same object.

Types, specs, meshes and shardings are interned, so that comparing them is comparing identities,
and whatever is computed from one can be cached on it. A table holds its objects weakly: an object
lives as long as somebody outside uses it, and no cache clearing ever touches it.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TypeVar
from weakref import WeakValueDictionary

__all__ = ["Immutable", "InternTable", "Uncopied"]

T = TypeVar("T")

# One lock for all tables, taken only on a miss. It is re-entrant, since the garbage collector may
# run arbitrary code while it is held; one lock rather than one a table, since two could be taken
# in either order.
_LOCK = threading.RLock()


class InternTable(WeakValueDictionary[Hashable, T]):
    """Objects by key, held weakly. `get(key)` is the fast path; `add(key, new)` settles a race.

    data: weak references by key, for those who save the call of `get`.
    """

    data: dict[Hashable, Callable[[], T | None]]

    def add(self, key: Hashable, new: T) -> T:
        """The object of `key`: the one already there if another thread was quicker, else `new`."""
        with _LOCK:
            return self.setdefault(key, new)


class Uncopied:
    """Base of classes of whose objects a copy is the object itself, and so is a deep copy."""

    __slots__ = ()

    def __copy__(self):
        return self

    def __deepcopy__(self, memo: dict):
        return self


class Immutable(Uncopied):
    """Base of interned classes: no attribute can be set or deleted once the object is made.

    The constructor writes through `object.__setattr__`. Pickling is up to the subclass, whose
    `__reduce__` goes through its constructor.
    """

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}")
