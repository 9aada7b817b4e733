"""Large evaluations on several threads, one per core.

numpy releases the GIL while a call works on more than some thousand elements. Handing work over
takes 0.1 ms, so it pays from several million elements on.

A thread that shares its core with another process is a hindrance: it may wait for its time slice in
the middle of a block, and the calling thread for it. So only cores that nobody uses at the time
are asked. Threads take blocks from one iterator, and the calling thread never waits for one that
has not begun.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .lazy import lazy_import

futures = lazy_import("concurrent.futures.thread")

ENOUGH = 1 << 22                # elements computed from which several threads are faster than one
LOAD = "/proc/loadavg"          # of Linux: load of 1, 5 and 15 minutes, running/all threads, a PID
_POOL: list[Any] = []           # one, once there are threads


def core_count() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CORES = min(core_count(), 8)


def share_count(elements: int) -> int:
    """Among how many threads to share work that computes so many elements."""
    return CORES if elements >= ENOUGH else 1


def free_cores() -> int:
    """The cores that are idle now, as far as the system tells how many threads run."""
    try:
        with open(LOAD, "rb", 0) as file:
            running = int(file.read(64).partition(b"/")[0].split()[-1])
    except (OSError, ValueError, IndexError):
        return CORES
    return max(0, (os.cpu_count() or 1) - running)


def in_parallel(jobs: Sequence[Callable[[], None]]) -> None:
    """Do all tasks, the first of them here, and raise what one of them raised.

    Each does what there is to do until nothing is left, so those for which no core is free, and
    those that have not begun when the first is done, are dropped.
    """
    others = []
    for job_function in jobs[1:1 + free_cores()] if len(jobs) > 1 else ():
        held = [job_function]
        others.append((held, _threads().submit(_quietly, held)))
    errors = []
    try:
        jobs[0]()
    finally:
        for held, job in others:
            if job.cancel():
                held.clear()                # its arrays are not to wait for a thread
            else:
                errors.append(job.exception())
    for error in errors:
        if error is not None:
            raise error


def _quietly(held: list[Callable[[], None]]) -> None:
    with np.errstate(all="ignore"):         # is per thread
        held.pop()()


def _threads() -> Any:
    if not _POOL:
        _POOL.append(futures.ThreadPoolExecutor(max(1, CORES - 1)))
    return _POOL[0]


if hasattr(os, "register_at_fork"):         # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_POOL.clear)
