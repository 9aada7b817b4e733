"""Large evaluations on several threads, one per core.

numpy releases the GIL while a call works on more than some thousand elements. Handing work over
takes 0.1 ms, so it pays from several million elements on. Matrix products have threads of their
own (those of BLAS).

Threads take blocks from one iterator: where another process has the other core, the calling thread
does nearly all of them, and it never waits for a thread that has not begun.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .lazy import lazy_import

futures = lazy_import("concurrent.futures.thread")

ENOUGH = 1 << 22                # elements computed from which several threads are faster than one
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


def in_parallel(jobs: Sequence[Callable[[], None]]) -> None:
    """Do all tasks, the first of them here, and raise what one of them raised.

    Each does what there is to do until nothing is left, so tasks that have not begun when the first
    is done are dropped.
    """
    others = []
    for job_function in jobs[1:]:
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
