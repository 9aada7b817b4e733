"""Runs products on a single thread of BLAS, and says how many threads of our own share one.

BLAS threads wait for work by spinning, and a product waits for all of them. If another process
occupies a core, one of them waits for its time slice, which takes longer than a product of a few
milliseconds on one thread. Our own (ir/support/threads.py) take parts that need no other. The
user's setting is restored after each product.
"""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ...support.caches import cached
from ...support.lazy import lazy_import
from ...support.threads import CORES, core_count, share_count

ctypes = lazy_import("ctypes")

SHORT = 1 << 27         # multiply-adds in float32: about 3 ms, a slice of time, on one thread
SINGLE_THREAD = 1 << 18         # BLAS itself takes one thread for fewer,
VECTOR = 1 << 13        # and here where one operand is a vector

_lock = threading.Lock()
_running, _count = 0, 0         # products on one thread now, and the threads to be restored behind


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
    return alone(multiply) if least <= work < SHORT and _library() is not None else multiply


def alone(multiply: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """A function of numpy's, on one thread of BLAS."""
    def product(*operands: Any, **options: Any) -> np.ndarray:
        _enter()
        try:
            return multiply(*operands, **options)
        finally:
            _leave()
    return product


def shares(each: int, work: int) -> int:
    """Among how many threads of our own to share products, each of so many multiply-adds, and all
    of `work`, of which eight take as long as an element. One where BLAS has more cores, or only one
    thread."""
    if each < SINGLE_THREAD or each >= SHORT and core_count() > CORES or _library() is None:
        return 1
    with _lock:
        threads = _count if _running else _library()[0]()
    return min(share_count(work // 8), threads)


def _enter() -> None:
    global _running, _count
    get, put = _library()
    with _lock:
        if not _running:
            _count = get()
            if _count > 1:
                put(1)
        _running += 1


def _leave() -> None:
    global _running
    with _lock:
        _running -= 1
        if not _running and _count > 1:
            _library()[1](_count)


@cached(1, "the functions of BLAS that say and set how many threads there are")
def _library() -> Any:
    """The functions that say and set how many threads there are, of the OpenBLAS that numpy has.

    None where it has another one: that one decides by itself.
    """
    try:
        symbols = ctypes.CDLL(sys.modules["numpy._core._multiarray_umath"].__file__)
    except (KeyError, OSError):
        return None
    for prefix, suffix in (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", "")):
        try:
            return (getattr(symbols, f"{prefix}openblas_get_num_threads{suffix}"),
                    getattr(symbols, f"{prefix}openblas_set_num_threads{suffix}"))
        except AttributeError:
            continue
    return None
