"""Which arrays there are: what `live_arrays` lists, without keeping any of them alive.

The garbage collector could be asked for all objects instead, but then it would also hand out the
tuples that other threads are just about to fill, which these take badly (a SystemError).
"""
from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

from ..ir.process import ProcessIdentity, process_identity

_Entry = tuple["weakref.ref[Any]", ProcessIdentity]

_known: dict[int, _Entry] = {}     # by id: an array that has gone leaves its place to the next


class _Sweep:
    """When to drop the entries of arrays that have gone: once there may be as many as others."""

    lock = threading.Lock()
    at = 4096


def remember(x: Any) -> None:
    """List `x` from now on."""
    remember_all((x,))


def remember_all(arrays: Sequence[Any]) -> None:
    """List these arrays from now on."""
    me, known, reference = process_identity(), _known, weakref.ref
    for x in arrays:
        key = id(x)
        if key in known:               # of an array that has gone: the new one comes last
            known.pop(key, None)
        known[key] = (reference(x), me)
    if len(known) > _Sweep.at:
        _sweep()


def _sweep() -> None:
    with _Sweep.lock:
        for key, entry in list(_known.items()):
            if entry[0]() is None:
                entry = _known.pop(key, entry)
                if entry[0]() is not None:         # another thread's, made in the meantime
                    _known.setdefault(key, entry)
        _Sweep.at = max(4096, 2 * len(_known))


def remembered() -> list[Any]:
    """All arrays that the calling process has made, in the order in which they were made."""
    me = process_identity()
    found = [(owner, r()) for r, owner in list(_known.values())]
    return [x for owner, x in found if x is not None and (owner is me or me.count == 1)]
