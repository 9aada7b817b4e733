"""Work that several threads need at the same time is done by one of them while the others wait.

No lock is held meanwhile, since an interrupt may end the work anywhere: a thread registers what it
works on, and waiting threads check whether the frame that does it is still running.
"""
from __future__ import annotations

import _thread
import sys
from types import FrameType
from typing import Any

PATIENCE = 0.05          # seconds after which those who wait look again

Claim = tuple[int, FrameType, list[Any]]
"""A thread that works on something, the frame in which it does, the locks of those who wait."""
CLAIMS: dict[Any, Claim] = {}
"""What is being worked on: who wants to do so writes `CLAIMS.setdefault(mark, his own)`, and where
that gives another's asks `done_by_another`; whose it is takes it away and wakes who waits."""
_WAITING: dict[int, Claim] = {}           # by thread: whom it waits for


def done_by_another(table: dict[Any, Any], key: Any, mark: Any, mine: Claim) -> Any:
    """What `table` has under `key` when the thread that works on it is done; None where the caller
    is to do it himself, since the other has given up, or waits for the caller, or is the caller.
    """
    while True:
        theirs = CLAIMS.setdefault(mark, mine)
        found = table.get(key)
        if theirs is mine or found is not None:
            return found
        if not _is_running(theirs):
            if CLAIMS.get(mark) is theirs:          # an interrupt ended it
                CLAIMS.pop(mark, None)
            wake(theirs)
        elif _waits(theirs, mine[0]):
            return None
        else:
            lock = _thread.allocate_lock()
            lock.acquire()
            _WAITING[mine[0]] = theirs
            try:
                theirs[2].append(lock)
                lock.acquire(timeout=PATIENCE)
            finally:
                _WAITING.pop(mine[0], None)


def wake(claim: Claim) -> None:
    """Let those go on who wait for a claim, which is no more."""
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
    """Is a claim the thread's own, or that of one who waits for it, perhaps by way of others?"""
    for _ in range(len(_WAITING) + 1):
        if claim[0] == thread:
            return True
        following = _WAITING.get(claim[0])
        if following is None:
            return False
        claim = following
    return True
