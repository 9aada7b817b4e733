"""Work that is shared among threads: who does it, and what becomes of errors."""
from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest

from shardtrace.ir.support import threads
from shardtrace.ir.support.threads import in_parallel, share_count


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Nobody else computes."""
    monkeypatch.setattr(threads, "free_cores", lambda: 16)


class Work:
    """Pieces that several threads take from one source; who did which."""

    def __init__(self, count):
        self.source = iter(range(count))
        self.done = []

    def __call__(self):
        for piece in self.source:
            self.done.append((piece, threading.get_ident()))


def test_every_piece_is_done_once():
    work = Work(1000)
    in_parallel([work] * 4)
    assert sorted(piece for piece, _ in work.done) == list(range(1000))


def test_two_threads_are_at_work_at_the_same_time():
    both = threading.Barrier(2, timeout=60)
    in_parallel([both.wait, both.wait])
    assert not both.broken


def test_nobody_waits_for_a_thread_that_has_not_begun():
    others = max(1, threads.CORES - 1)
    begun, over, ran = threading.Barrier(others + 1), threading.Event(), []

    def busy():
        begun.wait(60)
        over.wait(60)
    keeper = threading.Thread(target=in_parallel, args=([over.wait, *[busy] * others],))
    keeper.start()
    begun.wait(60)                              # all threads are at work
    try:
        work = Work(3)
        in_parallel([work, lambda: ran.append(1)])
        assert [piece for piece, _ in work.done] == [0, 1, 2]
    finally:
        over.set()
        keeper.join(60)
    in_parallel([lambda: None, lambda: None])
    assert not ran


def test_what_is_dropped_holds_no_arrays():
    class Task:
        def __init__(self):
            self.data = np.zeros(3)

        def __call__(self):
            pass
    task = Task()
    gone = weakref.ref(task)
    in_parallel([lambda: None, task])
    del task
    assert gone() is None


@pytest.mark.parametrize("here", [True, False])
def test_an_error_is_raised_where_the_work_came_from(here):
    begun = threading.Event()

    def fails():
        begun.set()
        raise ArithmeticError("no")
    tasks = [fails, lambda: None] if here else [lambda: begun.wait(60), fails]
    with pytest.raises(ArithmeticError, match="no"):
        in_parallel(tasks)


def test_cores_that_are_in_use_are_not_asked(monkeypatch):
    monkeypatch.setattr(threads, "free_cores", lambda: 1)
    ran = [threading.Event() for _ in range(3)]
    in_parallel([lambda: ran[1].wait(60), ran[1].set, ran[2].set])
    assert [one.is_set() for one in ran] == [False, True, False]


def test_how_many_cores_are_free_is_asked_of_the_system(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(threads, "CORES", 5)
    found = []
    for text in ("0.52 0.58 0.59 3/597 4711\n", "9.00 9.00 9.00 11/597 4711\n", "", "none"):
        (tmp_path / "load").write_text(text)
        monkeypatch.setattr(threads, "LOAD", str(tmp_path / "load"))
        found.append(threads.free_cores())
    monkeypatch.setattr(threads, "LOAD", str(tmp_path / "nowhere"))
    assert [*found, threads.free_cores()] == [5, 0, 5, 5, 5]


def test_large_work_is_shared(monkeypatch):
    monkeypatch.setattr(threads, "CORES", 2)
    assert share_count(1 << 10) == 1
    assert share_count(1 << 23) == 2
