"""A pool of large buffers: memory that is no longer referenced is kept for the next array.

A new large array costs a page fault for every 4 KB of it, about as much as computing its elements.
`empty` therefore reuses the memory of an array that was freed. References are not counted here: an
array of the pool, like every view of it, has a `_Lease` as its base, and the memory comes back when
the lease is collected. So results can be handed to the user like any other array.

Buffers start on a cache line. Unaligned ones take numpy up to twice as long to write: stores cross
cache lines, and stall on loads whose low address bits are the same. Buffers as large as huge pages
start on one, which costs one fault for each instead of hundreds.

The pool never holds more than was in use at one time before, so that the peak of memory is what it
would be without it, and at most `POOL.limit` bytes that are not in use.
"""
from __future__ import annotations

import bisect
import math
import mmap
import os
import threading
from _tracemalloc import is_tracing
from collections import deque
from typing import Any, ClassVar

import numpy as np

SMALLEST = 1 << 16              # bytes; below this malloc keeps its pages by itself
ALIGNED = 1 << 15               # bytes from which it pays to begin where a line does
_LINE = 64
_ROUND = 1 << 16
_PAGE = 1 << 21                 # bytes of a large page
_KEPT = (1 << 25) - (1 << 16)   # bytes: the most from which the C library learns
_HAS_PAGES = hasattr(mmap, "MADV_HUGEPAGE")


class _Memory(np.ndarray):
    """Bytes of the pool. (numpy lets views skip bases of their own class: hence a class.)"""

    __slots__ = ()


class _Lease(np.ndarray):
    """The base of an array of the pool: gives the memory back when it is collected.

    Each pool has a class of its own: an interrupt finds no lease that belongs to none yet.
    """

    __slots__ = ()

    returned: ClassVar[deque[Any]]

    def __del__(self) -> None:
        # The collector may come here at any point, also while this thread holds the pool's lock.
        self.returned.append(self.base)


class BufferPool:
    """Free memory by size, and how much is lent.

    limit: the most bytes to keep that are not in use.
    """

    def __init__(self, limit: int = 1 << 31) -> None:
        self.limit = limit
        self._lock = threading.RLock()
        self._returned: deque[np.ndarray] = deque()  # counted as lent until they are collected
        self._lease = type("_Lease", (_Lease,), {"__slots__": (), "returned": self._returned})
        self._sizes: list[int] = []                  # of the free ones, ascending
        self._free: list[np.ndarray] = []            # beside them; of equal size the newest last
        self._lent = 0
        self._kept = 0
        self._peak = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A C-contiguous array with arbitrary content, as `numpy.empty` gives it."""
        count = math.prod(shape) * dtype.itemsize
        if count < ALIGNED or dtype.hasobject:
            return np.empty(shape, dtype)
        if count < SMALLEST:
            return at_line(count).view(dtype).reshape(shape)
        size = -(-count // _ROUND) * _ROUND
        returned = self._returned
        memory = None
        try:
            memory = returned.pop()             # what died last is in the cache
            if memory.nbytes != size:
                returned.append(memory)
                memory = None
        except IndexError:
            pass
        if memory is None:
            memory = self._lend(size)
        return np.ndarray(shape, dtype, memory.view(self._lease))

    def _lend(self, size: int) -> np.ndarray:
        """Memory of at least this size: free memory if some fits, else new."""
        with self._lock:
            self._collect()
            memory = self._take(size)
            if memory is None:
                self._peak = max(self._peak, self._lent + size)
                self._shrink(self._peak - self._lent - size)
                memory = at_line(size) if size < _PAGE or not _HAS_PAGES else _pages(size)
                memory = memory.view(_Memory)
            self._lent += memory.nbytes
            self._peak = max(self._peak, self._lent)
            return memory

    def clear(self) -> None:
        """Give all memory that is not in use back to the system."""
        with self._lock:
            self._collect()
            self._shrink(0)
            self._peak = self._lent

    @property
    def kept(self) -> int:
        """Bytes that are held and not in use."""
        with self._lock:
            self._collect()
            return self._kept

    def _take(self, size: int) -> np.ndarray | None:
        """Free memory of this size or a little more."""
        i = bisect.bisect_left(self._sizes, size)
        if i == len(self._sizes) or self._sizes[i] > size + size // 8:
            return None
        i = bisect.bisect_right(self._sizes, self._sizes[i]) - 1
        self._kept -= self._sizes.pop(i)
        return self._free.pop(i)

    def _collect(self) -> None:
        """Take back what was returned, as far as the limit allows."""
        returned = self._returned
        while returned:
            memory = returned.popleft()
            size = memory.nbytes
            self._lent -= size
            if self._kept + size <= self.limit:
                i = bisect.bisect_right(self._sizes, size)
                self._sizes.insert(i, size)
                self._free.insert(i, memory)
                self._kept += size

    def _shrink(self, most: int) -> None:
        """Let go of free memory until at most `most` bytes are left, largest first."""
        while self._kept > max(most, 0):
            self._kept -= self._sizes.pop()
            self._free.pop()


def at_line(size: int) -> np.ndarray:
    """So many bytes that begin where a cache line does."""
    memory = np.empty(size + _LINE, np.uint8)
    first = -memory.__array_interface__["data"][0] % _LINE
    return memory[first:first + size]


def _pages(size: int) -> np.ndarray:
    """So many bytes from the start of a cache line, on large pages as far as they fill them. Where
    memory is traced, it is numpy's, which is seen then.
    """
    if is_tracing():
        return at_line(size)
    pages = size // _PAGE * _PAGE
    try:
        held = mmap.mmap(-1, pages + 2 * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory = np.frombuffer(held, np.uint8)
        first = -memory.__array_interface__["data"][0] % _PAGE
        held.madvise(mmap.MADV_HUGEPAGE, first, pages)
    except OSError:             # no room for it, or a kernel that was built without large pages
        return at_line(size)
    return memory[first:first + size]


def _limit() -> int:
    """An eighth of the machine's memory, and 2 GB at most."""
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names or "SC_PAGE_SIZE" not in names:
        return 1 << 30
    return min(1 << 31, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)


POOL = BufferPool(_limit())


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array with arbitrary content from the pool that all executors share.

    >>> from shardtrace.ir.support.buffer_pool import empty
    >>> x = empty((512, 512), np.dtype(np.float32))
    >>> x.shape, x.flags.c_contiguous
    ((512, 512), True)
    """
    return POOL.empty(shape, dtype)


# malloc gives large memory back to the system as it is freed, and what comes next costs a page
# fault every 4 KB. The C library of Linux keeps what is smaller than the largest that was freed.
np.empty(_KEPT, np.uint8)
