"""Short products run on one thread of BLAS, and what the user has set is in force behind them."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from shardtrace.ir.kernels.matrices import blas_threads
from shardtrace.ir.kernels.matrices.blas_threads import SHORT, SINGLE_THREAD, for_work


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many threads BLAS has, three at first."""
    count = [3]
    monkeypatch.setattr(blas_threads, "_library",
                        lambda: (lambda: count[0], lambda n: count.__setitem__(0, n)))
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


def test_the_library_of_numpy_is_found_or_left_alone() -> None:
    found = blas_threads._library()
    if found is not None:
        get, put = found
        before = get()
        put(1)
        assert get() == 1
        put(before)
        assert get() == before
