"""Threads for large evaluations: one per core, made when first needed.

numpy lets other threads run while a call works on more than some thousand elements. Handing work
over costs 0.1 ms, so it pays for several million cheap steps and more. Matrix products have their
own threads (those of BLAS).
"""
from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

ENOUGH = 1 << 22                # cheap steps from which several threads are faster than one
DEAR = 4                        # what a step that is not cheap costs, in cheap ones
CHEAP = frozenset({
    np.absolute, np.add, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.conjugate, np.equal,
    np.greater, np.greater_equal, np.invert, np.less, np.less_equal, np.logical_and, np.logical_not,
    np.logical_or, np.maximum, np.minimum, np.multiply, np.negative, np.not_equal, np.positive,
    np.square, np.subtract})

_THREADS: list[ThreadPoolExecutor] = []
_LOCK = threading.Lock()


def core_count() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CORES = min(core_count(), 8)


def share_count(steps: int) -> int:
    """Among how many threads to share work that costs as much as so many cheap steps.

    A cheap step is an addition of two numbers.
    """
    return CORES if steps >= ENOUGH else 1


def in_parallel(tasks: Sequence[Callable[[], None]]) -> None:
    """Do all tasks, one of them here, and raise what one of them raised."""
    if not _THREADS:
        with _LOCK:
            if not _THREADS:
                _THREADS.append(ThreadPoolExecutor(max(1, CORES - 1), "shardtrace"))
    futures = [_THREADS[0].submit(_quietly, task) for task in tasks[1:]]
    try:
        tasks[0]()
    finally:
        errors = [f.exception() for f in futures]
    for error in errors:
        if error is not None:
            raise error


def _quietly(task: Callable[[], None]) -> None:
    with np.errstate(all="ignore"):         # is per thread
        task()


if hasattr(os, "register_at_fork"):         # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_THREADS.clear)
