"""Pausing the cyclic garbage collector while many linked objects are made.

Programs are graphs of small objects that stay alive; building one makes the collector run again
and again over all of them, for nothing. Bulk stages (trace, parse, print, pass) switch it off. The
collector is one for all threads: the last of those that are in a bulk stage switches it on again.
"""
from __future__ import annotations

import gc
import sys
import threading

_FULL_COLLECTION = 1_000_000     # objects: tens of megabytes of garbage at worst


class _Pauses:
    """How many bulk stages are under way in all threads, and whether to switch on after them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.count = 0
        self.enabled = False
        self.aged = 0          # objects made old since all were looked through, or had not to be
        self.alive = 0         # blocks of memory that were left then

    def age(self) -> None:
        """Make all young objects old, unlooked at; look through all where many have stayed."""
        self.aged += gc.get_count()[0]
        if self.aged >= _FULL_COLLECTION:
            self.aged = 0
            blocks = sys.getallocatedblocks()      # 0: this interpreter does not count them
            if not blocks or blocks - self.alive >= _FULL_COLLECTION:
                gc.collect()
                self.alive = sys.getallocatedblocks()
                return
            self.alive = min(self.alive, blocks)
        gc.freeze()
        gc.unfreeze()


_pauses = _Pauses()


class collector_paused:
    """Keep the collector off within a `with` block, and then as it was before.

    What a bulk stage has made is old at once: it will stay alive, mostly, and looking through all
    of it as young objects costs a fifth of the stage. Once so many have been aged that what is
    garbage among them could matter, and so many are alive still (most programs go when nobody holds
    them, without the collector), all objects are looked through.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        with _pauses.lock:
            if _pauses.count == 0:
                _pauses.enabled = gc.isenabled()
                gc.disable()
            _pauses.count += 1

    def __exit__(self, *exc: object) -> None:
        with _pauses.lock:
            _pauses.count -= 1
            if _pauses.count == 0 and _pauses.enabled:
                if not gc.get_freeze_count():      # else somebody keeps objects out of its sight
                    _pauses.age()
                gc.enable()
