"""Threads for large evaluations: one per core, made when first needed.

numpy lets other threads run while a call works on more than some thousand elements. Handing work
over costs 0.1 ms, so it pays for several million cheap steps and more. Matrix products have their
own threads (those of BLAS).

Threads take their work from one source, a piece at a time: where another program has the other
core, the thread that asked does nearly all of it, and nobody waits for a thread that never began.
"""
from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import numpy as np

ENOUGH = 1 << 22                # cheap steps from which several threads are faster than one
DEAR = 4                        # what a step that is not cheap costs, in cheap ones
CHEAP = frozenset({
    np.absolute, np.add, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.conjugate, np.equal,
    np.greater, np.greater_equal, np.invert, np.less, np.less_equal, np.logical_and, np.logical_not,
    np.logical_or, np.maximum, np.minimum, np.multiply, np.negative, np.not_equal, np.positive,
    np.square, np.subtract})


class _Job:
    """A task for another thread. taken: held once it begins, or is dropped. done: held until it is.
    """

    __slots__ = ("done", "error", "taken", "task")

    def __init__(self, task: Callable[[], None]) -> None:
        self.task: Callable[[], None] | None = task
        self.taken = threading.Lock()
        self.done = threading.Lock()
        self.done.acquire()
        self.error: BaseException | None = None


_JOBS: list[SimpleQueue[_Job]] = []         # one, once there are threads
_LOCK = threading.RLock()


def core_count() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CORES = min(core_count(), 8)


def share_count(steps: int, moved: int = 0) -> int:
    """Among how many threads to share work that costs as much as so many cheap steps.

    A cheap step is an addition of two numbers in the cache. moved: bytes that are read from and
    written to memory; eight of them count as a step, though they take longer: where another
    program has the other core, nothing is won.
    """
    return CORES if steps + moved // 8 >= ENOUGH else 1


def in_parallel(tasks: Sequence[Callable[[], None]]) -> None:
    """Do all tasks, one of them here, and raise what one of them raised.

    Each does what there is to do until nothing is left of it. So those that no thread has begun
    when the one here is done are dropped.
    """
    jobs = [_Job(task) for task in tasks[1:]]
    for job in jobs:
        _queue().put(job)
    try:
        tasks[0]()
    finally:
        for job in jobs:
            if job.taken.acquire(False):
                job.task = None             # its arrays are not to wait for a thread
            else:
                job.done.acquire()
    for job in jobs:
        if job.error is not None:
            raise job.error


def _queue() -> SimpleQueue[_Job]:
    """What the threads take their work from. Nobody waits for them to begin."""
    if not _JOBS:
        with _LOCK:
            if not _JOBS:
                queue: SimpleQueue[_Job] = SimpleQueue()
                for _ in range(max(1, CORES - 1)):
                    _thread.start_new_thread(_work, (queue,))
                _JOBS.append(queue)
    return _JOBS[0]


def _work(queue: SimpleQueue[_Job]) -> None:
    with np.errstate(all="ignore"):         # is per thread
        while True:
            job = queue.get()
            if job.taken.acquire(False):
                task, job.task = job.task, None
                try:
                    task()  # type: ignore[misc]
                except BaseException as error:  # raised where the task came from
                    job.error = error
                task = None                 # who waits for the job is to hold its arrays alone
                job.done.release()
            del job


if hasattr(os, "register_at_fork"):         # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_JOBS.clear)
