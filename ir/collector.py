"""Pausing the cyclic garbage collector while many linked objects are made.

Programs are graphs of small objects that stay alive; building one makes the collector run again
and again over all of them, for nothing. Bulk stages (trace, parse, print, pass) switch it off. The
collector is one for all threads: the last of those that are in a bulk stage switches it on again.
"""
from __future__ import annotations

import gc
import threading


class _Pauses:
    """How many bulk stages are under way in all threads, and whether to switch on after them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.count = 0
        self.enabled = False


_pauses = _Pauses()


class collector_paused:
    """Keep the collector off within a `with` block, and then as it was before."""

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
                gc.enable()
