"""Short products run on one thread of BLAS, and what the user has set is in force after them."""
from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import numpy as np
import pytest

from shardtrace.ir.kernels.matrices import blas_threads
from shardtrace.ir.kernels.matrices.blas_threads import (
    NUMPY,
    SHORT,
    SINGLE_THREAD,
    Threads,
    by_lapack,
    for_work,
)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many threads BLAS has, three at first."""
    count = [3]
    library = Threads(lambda: count[0], lambda n: count.__setitem__(0, n))
    monkeypatch.setattr(blas_threads, "_library", lambda module: library)
    yield count


def test_a_short_product_has_one_thread_and_the_users_are_back_behind(threads: list[int]) -> None:
    def seen(*operands: float) -> tuple[int, tuple[float, ...]]:
        return threads[0], operands
    assert for_work(seen, SHORT - 1)(1.0, 2.0) == (1, (1.0, 2.0))
    assert threads == [3]
    threads[0] = 2                                      # set meanwhile
    assert for_work(seen, SINGLE_THREAD)() == (1, ())
    assert threads == [2]


def test_what_is_shared_or_too_small_for_threads_is_left_alone(threads: list[int]) -> None:
    assert for_work(np.dot, SHORT) is np.dot
    assert for_work(np.dot, SINGLE_THREAD - 1) is np.dot


def test_threads_are_restored_behind_errors_and_by_the_last_of_several_products(
        threads: list[int]) -> None:
    def fail() -> np.ndarray:
        raise KeyboardInterrupt

    def outer() -> list[int]:
        with pytest.raises(KeyboardInterrupt):
            for_work(fail, SINGLE_THREAD)()
        return list(threads)
    assert for_work(outer, SINGLE_THREAD)() == [1]
    assert threads == [3]


@pytest.mark.parametrize(("size", "wanted"), [(8, 3), (32, 1), (511, 1), (512, 3)])
def test_a_factorisation_has_one_thread_unless_the_matrix_is_large(
        threads: list[int], size: int, wanted: int) -> None:
    found = by_lapack(lambda lead, a, *, lower: (list(threads), lower))(
        0, np.ones((2, size, size)), lower=True)
    assert found == ([wanted], True)
    assert threads == [3]


def test_calls_at_the_same_time_restore_the_users_threads_once(threads: list[int]) -> None:
    library = blas_threads._library(NUMPY)
    assert library is not None
    library.enter()
    library.enter()
    assert (threads, library.count) == ([1], 3)
    for _ in range(2):
        library.leave()
    assert threads == [3]


def test_the_library_of_numpy_is_found_or_left_alone() -> None:
    found = blas_threads._library(NUMPY)
    if found is not None:
        before = found.count
        found.enter()
        assert (found._get(), found.count) == (1, before)
        found.leave()
        assert found._get() == before


def test_a_library_is_known_once_its_module_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas_threads, "_FOUND", {})
    assert blas_threads._library("no_such_module") is None
    monkeypatch.setitem(sys.modules, "no_such_module", types.SimpleNamespace(__file__="/nowhere"))
    assert blas_threads._library("no_such_module") is None
    assert blas_threads._library(NUMPY) is blas_threads._library(NUMPY)
