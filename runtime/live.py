"""Which arrays there are: what `live_arrays` lists, without keeping any of them alive.

The garbage collector could be asked for all objects instead, but then it would also hand out the
tuples that other threads are just about to fill, which these take badly (a SystemError).
"""
from __future__ import annotations

import weakref
from typing import Any

from ..ir.process import ProcessIdentity, process_identity


class _Reference(weakref.ref):
    """A weak reference to an array, with the process that made it. key: its place in the table."""

    __slots__ = ("key", "owner")

    key: int
    owner: ProcessIdentity


_known: dict[int, _Reference] = {}


def _forget(reference: Any) -> None:
    _known.pop(reference.key, None)


def remember(x: Any) -> None:
    """List `x` from now on."""
    reference = _Reference(x, _forget)
    reference.key = key = id(x)
    reference.owner = process_identity()
    _known[key] = reference


def remembered() -> list[Any]:
    """All arrays that the calling process has made, in the order in which they were made."""
    me = process_identity()
    found = [(r.owner, r()) for r in list(_known.values())]
    return [x for owner, x in found if x is not None and (owner is me or me.count == 1)]
