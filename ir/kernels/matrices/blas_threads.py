"""Runs products on a single BLAS thread each, and shares them among the threads of this package.

BLAS threads wait for work by spinning, and a product waits for all of them. If another process
occupies a core, one of them waits for its time slice, which takes longer than a product of a few
milliseconds on one thread. A factorisation consists of many products: next to a busy process, one
of 256 rows takes 100 times as long on two threads. So products are shared among our own threads
(ir/support/threads.py), in parts that do not wait for each other, and LAPACK gets one BLAS thread
except for large matrices. The user's setting is restored after each call.

The number of parts of a product, and of threads for LAPACK, depends on sizes and on the machine,
but not on what else runs there: otherwise a program would not give the same bits twice.
"""
from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ...support.lazy import lazy_import
from ...support.threads import CORES, core_count, share_count

ctypes = lazy_import("ctypes")

SHORT = 1 << 27         # multiply-adds in float32: about 3 ms, a slice of time, on one thread
SINGLE_THREAD = 1 << 18         # BLAS itself takes one thread for fewer,
VECTOR = 1 << 13        # and here where one operand is a vector
FEWEST = 1 << 10        # elements of a matrix for which LAPACK takes several threads,
LARGE = 1 << 18         # and for which it keeps them

NUMPY, SCIPY = "numpy._core._multiarray_umath", "scipy.linalg._fblas"     # that have a BLAS
_FOUND: dict[str, Threads | None] = {}          # of these; no cache: there is one of each
_lock = threading.Lock()


class Threads:
    """The threads of an OpenBLAS, by its functions that say and set how many there are: as many as
    the user has set, but for calls that ask for fewer."""

    def __init__(self, get: Callable[[], int], put: Callable[[int], Any]) -> None:
        self._get, self._put = get, put
        self._running, self._users = 0, 0

    @property
    def count(self) -> int:
        """The number of threads that the user has set."""
        with _lock:
            return self._users if self._running else self._get()

    def enter(self) -> None:
        """One until `leave`."""
        with _lock:
            now = self._get()
            if not self._running:
                self._users = now
            if now > 1:
                self._put(1)
            self._running += 1

    def leave(self) -> None:
        """What the user has set is in force again, if nobody else has entered."""
        with _lock:
            self._running -= 1
            if not self._running and self._users != self._get():
                self._put(self._users)


def for_work(multiply: Callable[..., np.ndarray], work: int, least: int = SINGLE_THREAD
             ) -> Callable[..., np.ndarray]:
    """A function of numpy's that takes so many multiply-adds, on the threads that pay for them.

    >>> import numpy as np
    >>> from shardtrace.ir.kernels.matrices.blas_threads import for_work
    >>> for_work(np.dot, 8) is np.dot
    True
    >>> for_work(np.dot, 64 ** 3)(np.ones((64, 64)), np.ones((64, 64)))[0, 0].item()
    64.0
    """
    return single_threaded(multiply) if least <= work < SHORT and _library(NUMPY) else multiply


def single_threaded(multiply: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """A function of numpy's, on one thread of BLAS."""
    library = _library(NUMPY)
    assert library is not None

    def product(*operands: Any, **options: Any) -> np.ndarray:
        library.enter()
        try:
            return multiply(*operands, **options)
        finally:
            library.leave()
    return product


def by_lapack(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """A function of stacks of matrices, on one thread of BLAS unless these are large."""
    @functools.wraps(evaluate)
    def function(lead: int, a: np.ndarray, *others: Any, **params: Any) -> Any:
        if not FEWEST <= math.prod(a.shape[-2:]) < LARGE:
            return evaluate(lead, a, *others, **params)
        found = [x for x in map(_library, (NUMPY, SCIPY)) if x]
        for library in found:
            library.enter()
        try:
            return evaluate(lead, a, *others, **params)
        finally:
            for library in found:
                library.leave()
    return function


def shares(each: int, work: int) -> int:
    """Among how many threads of our own to share products, each of so many multiply-adds, and all
    of `work`, of which eight take as long as an element. One where BLAS has more cores, or only one
    thread."""
    library = _library(NUMPY)
    if each < SINGLE_THREAD or each >= SHORT and core_count() > CORES or library is None:
        return 1
    return min(share_count(work // 8), library.count)


def _library(module: str) -> Threads | None:
    """The OpenBLAS that a module has, once it is loaded. None where it has another one: that one
    decides by itself."""
    if module not in _FOUND and module in sys.modules:
        with _lock:
            _FOUND.setdefault(module, _of_file(sys.modules[module].__file__))
    return _FOUND.get(module)


def _of_file(file: str | None) -> Threads | None:
    """How a library of BLAS gets and sets its number of threads; None if it is not OpenBLAS."""
    try:
        symbols = ctypes.CDLL(file)
    except OSError:
        return None
    for prefix, suffix in (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", "")):
        try:
            return Threads(getattr(symbols, f"{prefix}openblas_get_num_threads{suffix}"),
                           getattr(symbols, f"{prefix}openblas_set_num_threads{suffix}"))
        except AttributeError:
            continue
    return None
