"""Lists the live arrays, by weak references.

The garbage collector could list all objects instead, but it would also hand out tuples that other
threads are still filling, which then fail with a SystemError.
"""
from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

from ..ir.meshes.process import THREAD, ProcessIdentity
from .devices import devices

_Known = dict[int, "weakref.ref[Any]"]

# By process and id: the entry of a collected array is overwritten by the next of its id.
_known: dict[ProcessIdentity, _Known] = {}


class _Sweep:
    """When to drop the entries of collected arrays: once they may outnumber the others."""

    lock = threading.RLock()
    at = 4096


def remember(arrays: Sequence[Any]) -> None:
    """Add these arrays to the list."""
    me = THREAD.identity
    known = _known.get(me)
    if known is None:
        known = _known.setdefault(me, {})
    if len(arrays) == 1:
        known[id(arrays[0])] = weakref.ref(arrays[0])
    else:
        known.update(zip(map(id, arrays), map(weakref.ref, arrays), strict=True))
    if len(known) > _Sweep.at:
        _sweep(known)


def _sweep(known: _Known) -> None:
    with _Sweep.lock:
        for key, entry in list(known.items()):
            if entry() is None:
                entry = known.pop(key, entry)
                if entry() is not None:         # another thread's, made in the meantime
                    known.setdefault(key, entry)
        _Sweep.at = max(4096, 2 * max(map(len, list(_known.values()))))


def remembered() -> list[Any]:
    """All arrays that the calling process has made."""
    me = THREAD.identity
    lists = list(_known.items()) if me.count == 1 else [(me, _known.get(me, {}))]
    found = [reference() for _, known in lists for reference in list(known.values())]
    return [x for x in found if x is not None]


def live_arrays(platform: str | None = None) -> list[Any]:
    """All arrays of this process that still have data and are referenced.

    platform: of their devices. Raises RuntimeError for an unknown platform.

    >>> x = jnp.ones(3)
    >>> any(y is x for y in st.live_arrays())
    True
    >>> x.delete()
    >>> any(y is x for y in st.live_arrays())
    False
    """
    devices(platform)      # raises
    return [x for x in remembered() if not x.is_deleted()]
