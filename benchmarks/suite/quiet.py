"""Measuring again what other systems of the same host disturbed.

A virtual machine's processor may be given to others while a program runs. Linux counts that time
("steal" in /proc/stat); a measurement during which much of it was taken is repeated.
"""
from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ENOUGH = 0.02           # of the time of one core: what is taken of it disturbs nothing
TRIES = 4
PAUSE = 0.1             # seconds; who takes a processor keeps it for some
LONG = 3.0              # seconds; what takes longer is not done again


def stolen() -> float:
    """Seconds, of all cores together, that the host gave to others. 0 where that is not counted."""
    counts = Path("/proc/stat")
    if not counts.exists():
        return 0.0
    cpu = counts.read_text().split("\n", 1)[0].split()
    return int(cpu[8]) / os.sysconf("SC_CLK_TCK") if len(cpu) > 8 else 0.0


def undisturbed(measure: Callable[[], T], clock: Callable[[], float] = stolen) -> tuple[T, float]:
    """What `measure` gives, and the part of a core's time that others took meanwhile.

    Done again up to `TRIES` times; the least disturbed one counts. Which one that is depends on
    what was taken alone, never on what was measured.
    """
    found: list[tuple[float, T]] = []
    for _ in range(TRIES):
        start, before = time.perf_counter(), clock()
        value = measure()
        took = time.perf_counter() - start
        found.append(((clock() - before) / took, value))
        if found[-1][0] <= ENOUGH or took > LONG:
            break
        time.sleep(PAUSE)
    share, value = min(found, key=lambda x: x[0])
    return value, share
