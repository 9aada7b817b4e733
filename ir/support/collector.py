"""Pausing the cyclic garbage collector while many linked objects are made.

Programs are graphs of small objects that stay alive; building one makes the collector run again
and again over all of them, for nothing. Bulk stages (trace, parse, print, pass) switch it off. The
collector is one for all threads: the last of those that are in a bulk stage switches it on again.
"""
from __future__ import annotations

import gc
import sys
from threading import get_ident

_FULL_COLLECTION = 1_000_000     # objects: tens of megabytes of garbage at worst


class _Pauses:
    """Which bulk stages are under way, and whether to switch on after the last of them.

    No lock is taken, since an interrupt may come while it is held. What an interrupt leaves is
    ended by the call of the package that it passes (`put_back` in ir/context.py).
    """

    def __init__(self) -> None:
        self.stages: dict[int, collector_paused] = {}      # by id
        self.switched = False  # a stage that has ended switched it off
        self.aged = 0          # objects made old since all were looked through, or had not to be
        self.alive = 0         # blocks of memory that were left then
        self.frozen = False    # somebody has kept objects out of the collector's sight

    def may_age(self) -> bool:
        """Are no objects frozen? They would come back; and to count them takes as long as they are
        many, so who has frozen some is not asked again.
        """
        self.frozen = self.frozen or gc.get_freeze_count() > 0
        return not self.frozen

    def collect(self) -> bool:
        """Look through all objects where many have stayed; whether that was so."""
        self.aged = 0
        blocks = sys.getallocatedblocks()      # 0: this interpreter does not count them
        if blocks and blocks - self.alive < _FULL_COLLECTION:
            self.alive = min(self.alive, blocks)
            return False
        gc.collect()
        self.alive = sys.getallocatedblocks()
        return True


_pauses = _Pauses()


class collector_paused:
    """Keep the collector off within a `with` block, and then as it was before.

    What a bulk stage has made is old at once: it will stay alive, mostly, and looking through all
    of it as young objects costs a fifth of the stage. Once so many have been aged that what is
    garbage among them could matter, and so many are alive still (most programs go when nobody holds
    them, without the collector), all objects are looked through.
    """

    __slots__ = ("switched", "thread")

    def __enter__(self) -> None:
        self.thread, self.switched = get_ident(), False
        _pauses.stages[id(self)] = self
        if gc.isenabled():
            self.switched = True
            gc.disable()

    def __exit__(self, *exc: object) -> None:
        pauses = _pauses
        if self.switched:
            pauses.switched = True
        pauses.stages.pop(id(self), None)
        if pauses.switched and not pauses.stages:
            try:
                if pauses.may_age():
                    pauses.aged += gc.get_count()[0]
                    if pauses.aged < _FULL_COLLECTION or not pauses.collect():
                        gc.freeze()                # makes all young objects old, unlooked at
                        gc.unfreeze()
            finally:
                gc.enable()
                pauses.switched = False
        self.switched = False


def end_pauses() -> None:
    """No bulk stage of this thread is under way any more: an interrupt has ended them."""
    me = get_ident()
    for stage in [s for s in list(_pauses.stages.values()) if s.thread == me]:
        stage.__exit__()
    if _pauses.switched and not _pauses.stages:      # the last one's end was interrupted
        gc.enable()
        _pauses.switched = False
