"""Cache keys of arrays: everything about an array that selects an executable."""
from __future__ import annotations

from ..ir.shardings.formats import Layout
from ..ir.shardings.sharding import Sharding
from ..ir.support.interning import InternTable
from ..ir.types import ArrayType


class ArrayKey:
    """All of an array that selects an executable: type, where it is committed, layout. Equal ones
    are one object, so a call compares identities.
    """

    __slots__ = ("__weakref__", "aval", "layout", "sharding")

    def __init__(self, aval: ArrayType, sharding: Sharding | None, layout: Layout | None) -> None:
        self.aval, self.sharding, self.layout = aval, sharding, layout


_KEYS: InternTable[ArrayKey] = InternTable()


def array_key(aval: ArrayType, sharding: Sharding | None, layout: Layout | None = None) -> ArrayKey:
    """The key of arrays with these; sharding is None for uncommitted arrays."""
    parts = (aval, sharding, layout)
    return _KEYS.get(parts) or _KEYS.add(parts, ArrayKey(*parts))
