"""Which process the calling thread belongs to, of how many, and which devices each owns.

In simulation a process is a thread (arrays/processes/simulated.py), so the identity is per thread,
with a default for threads that were not given one; a real process sets that default once. Devices
are names: the same device may be dealt to one process or to another, and which of them are
*addressable* depends on who asks. Identities are interned, so that what depends on one can be
cached on it.
"""
from __future__ import annotations

import threading

from ..support.interning import Immutable, InternTable
from ..support.scopes import override

__all__ = [
    "ProcessIdentity", "process_identity", "process_index", "process_scope",
    "set_default_process_index",
]


class ProcessIdentity(Immutable):
    """One process among several.

    index: its number. owners: the process that owns the device of each id; empty where all devices
    that are not assigned elsewhere belong to process 0.
    """

    __slots__ = ("__weakref__", "count", "index", "owners")

    index: int
    owners: tuple[int, ...]
    count: int
    """The number of processes."""

    def __new__(cls, index: int = 0, owners: tuple[int, ...] = ()) -> ProcessIdentity:
        key = (index, owners)
        identity = _IDENTITIES.get(key)
        if identity is None:
            identity = object.__new__(cls)
            put = object.__setattr__
            put(identity, "index", index)
            put(identity, "owners", owners)
            put(identity, "count", max(owners) + 1 if owners else 1)
            identity = _IDENTITIES.add(key, identity)
        return identity

    def __reduce__(self) -> tuple:
        return ProcessIdentity, (self.index, self.owners)

    def __repr__(self) -> str:
        return f"ProcessIdentity({self.index} of {self.count})"


_IDENTITIES: InternTable[ProcessIdentity] = InternTable()


class _Thread(threading.local):
    identity = ProcessIdentity()   # of every thread that did not enter a `process_scope`


THREAD = _Thread()
"""Who the calling thread is, as `THREAD.identity`: for those who ask at every call."""


def process_identity() -> ProcessIdentity:
    """Who the calling thread is; compared by identity."""
    return THREAD.identity


def process_index() -> int:
    """Index of the process that the calling thread belongs to (0 with a single process)."""
    return THREAD.identity.index


def process_scope(index: int, owners: tuple[int, ...] | None = None) -> override:
    """Within it the calling thread is process `index`, for simulated processes.

    owners: the process that owns the device of each id; as before if None.
    """
    identity = ProcessIdentity(index, THREAD.identity.owners if owners is None else owners)
    return override(THREAD, identity, identity=identity)


def set_default_process_index(index: int, owners: tuple[int, ...] = ()) -> None:
    """Make `index` the identity of all threads of this operating system process (MPI ranks)."""
    _Thread.identity = ProcessIdentity(index, owners)
