"""Pausing the cyclic garbage collector while many linked objects are made.

Programs are graphs of small objects that stay alive; building one makes the collector run again
and again over all of them, for nothing. Bulk stages (trace, parse, print, pass) switch it off. The
collector is one for all threads: the last of those that are in a bulk stage switches it on again.
"""
from __future__ import annotations

import gc
import sys
from threading import get_ident

_FULL_COLLECTION = 2_000_000     # objects: a hundred megabytes of garbage at worst


class _Pauses:
    """Which bulk stages are under way, and whether to switch on after the last of them.

    No lock is taken, since an interrupt may come while it is held. A stage that an interrupt leaves
    ends as its object goes, and where a traceback keeps that, by the call of the package that the
    interrupt passes (`put_back` in ir/settings/context.py).
    """

    def __init__(self) -> None:
        self.stages: dict[int, int] = {}       # id of the object of a stage -> its thread
        self.switched: object = None    # the mark of the stage that has switched it off
        self.aged = 0          # objects made old since all were looked through, or had not to be
        self.alive = 0         # blocks of memory that were left then
        self.frozen = False    # somebody has kept objects out of the collector's sight

    def ended(self) -> None:
        """Switch the collector on, if the last stage has ended, and one had switched it off."""
        switched = self.switched
        if switched is not None and not self.stages:
            try:
                if self.may_age():
                    self.aged += gc.get_count()[0]
                    if self.aged < _FULL_COLLECTION or not self.collect():
                        gc.freeze()                # makes all young objects old, unlooked at
                        gc.unfreeze()
            finally:
                gc.enable()
                if self.switched is switched:       # no other thread's stage since
                    self.switched = None

    def may_age(self) -> bool:
        """Are no objects frozen? They would be unfrozen, too. Counting them takes time in
        proportion to their number, so a process that has frozen some is not asked again.
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

    entered = False

    def __enter__(self) -> None:
        self.entered = True
        _pauses.stages[id(self)] = get_ident()
        if gc.isenabled():
            _pauses.switched = object()
            gc.disable()

    def __exit__(self, *exc: object) -> None:
        _pauses.stages.pop(id(self), None)
        _pauses.ended()
        self.entered = False

    def __del__(self) -> None:
        if self.entered:                 # an interrupt came before its end, or into it
            self.__exit__()


def end_pauses() -> None:
    """No bulk stage of this thread is under way any more: an interrupt has ended them."""
    me = get_ident()
    for stage in [s for s, thread in list(_pauses.stages.items()) if thread == me]:
        _pauses.stages.pop(stage, None)
    _pauses.ended()
