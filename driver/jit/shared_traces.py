"""Traces of functions: a function is one program however often it is jitted, and traced once.

What several threads need at the same time is done by one of them while the others wait. No lock is
held meanwhile, since an interrupt may end the work anywhere: a thread registers what it works on,
and waiting threads check whether the frame that does it is still running.
"""
from __future__ import annotations

import _thread
import sys
import types
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from ...ir.support.caches import Cache, tables
from ...tracer.staging.signature import Arguments

_TRACES = tables("driver.jit.shared_traces._TRACES", "traced programs of one function", 1024)
# A function that its own trace leads back to, by a callback for instance, is held until others have
# come; jitted functions keep their traces.
_SHARED_TRACES: weakref.WeakKeyDictionary[Any, dict[Any, dict[Any, Any]]] = (
    weakref.WeakKeyDictionary())
_SHARED = Cache("driver.jit.shared_traces._SHARED_TRACES",
                "traces of functions, for all their jitted forms", 1024, _SHARED_TRACES)


def traces_of(f: Callable[..., Any], arguments: Arguments) -> dict[Any, Any]:
    """The traces of a function, which all its jitted forms with these static arguments share."""
    if type(f) is not types.FunctionType:
        return _TRACES()
    known = _SHARED_TRACES
    if len(known.data) >= _SHARED.most and f not in known:  # type: ignore[attr-defined]
        for entry in known.keyrefs()[:1 + _SHARED.most // 8]:
            known.pop(entry(), None)
    of_function = known.setdefault(f, {})
    return of_function.setdefault((arguments.static_nums, arguments.static_names),
                                  _TRACES())


PATIENCE = 0.05          # seconds after which those who wait look again

Claim = tuple[int, FrameType, list[Any]]
"""A thread that works on something, the frame in which it does, the locks of those who wait."""
CLAIMS: dict[Any, Claim] = {}
"""By mark, what is being worked on. A thread begins with `CLAIMS.setdefault(mark, claim)`: where
that gives another's claim it calls `done_by_another`, else it does the work, removes its claim and
wakes the threads that wait for it."""
_WAITING: dict[int, Claim] = {}           # by thread: whom it waits for


def done_by_another(table: dict[Any, Any], key: Any, mark: Any, claim: Claim) -> Any:
    """What `table` has under `key` when the thread that works on it is done; None where the caller
    is to do it himself, since the other has given up, or waits for the caller, or is the caller.
    """
    while True:
        holder = CLAIMS.setdefault(mark, claim)
        found = table.get(key)
        if holder is claim or found is not None:
            return found
        if not _is_running(holder):
            if CLAIMS.get(mark) is holder:          # an interrupt ended it
                CLAIMS.pop(mark, None)
            wake(holder)
        elif _waits(holder, claim[0]):
            return None
        else:
            lock = _thread.allocate_lock()
            lock.acquire()
            _WAITING[claim[0]] = holder
            try:
                holder[2].append(lock)
                lock.acquire(timeout=PATIENCE)
            finally:
                _WAITING.pop(claim[0], None)


def wake(claim: Claim) -> None:
    """Wake the threads that wait for a claim that has been released."""
    for lock in claim[2]:
        if lock.locked():
            lock.release()
    claim[2].clear()


def _is_running(claim: Claim) -> bool:
    """Is the frame of a claim among those of its thread?"""
    frame = sys._current_frames().get(claim[0])
    while frame is not None and frame is not claim[1]:
        frame = frame.f_back
    return frame is not None


def _waits(claim: Claim, thread: int) -> bool:
    """Does the thread hold a claim itself, or does its holder wait for it, directly or through
    others?
    """
    for _ in range(len(_WAITING) + 1):
        if claim[0] == thread:
            return True
        following = _WAITING.get(claim[0])
        if following is None:
            return False
        claim = following
    return True
