"""The garbage collector rests while programs are built; what lies in cycles goes all the same."""
import gc
import weakref

import pytest

from shardtrace.ir.support import collector
from shardtrace.ir.support.collector import collector_paused, end_pauses

from ... import interrupts


class Node:
    """Something that can hold itself."""


@pytest.fixture
def full_collections(monkeypatch):
    """How many times all objects are looked through, a thousand new ones being many."""
    gc.unfreeze()                                   # while any are frozen, it leaves all alone
    gc.collect()
    monkeypatch.setattr(collector, "_FULL_COLLECTION", 1_000)
    monkeypatch.setattr(collector, "_pauses", collector._Pauses())
    with collector_paused():                        # the first time says how many blocks there are
        made = [[] for _ in range(3_000)]
    del made
    seen = []

    def note(phase, info):
        if phase == "stop" and info["generation"] == 2:
            seen.append(info)

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.freeze()


def test_what_goes_by_itself_is_not_looked_for(full_collections):
    for _ in range(10):
        with collector_paused():
            made = [[] for _ in range(3_000)]
        del made
    assert full_collections == []


def test_what_stays_is_looked_through_now_and_then(full_collections):
    made = []
    for _ in range(4):
        with collector_paused():
            made.append([[] for _ in range(3_000)])
    assert len(full_collections) in (3, 4)


def test_cycles_go(full_collections):
    gone = []
    for _ in range(5):
        with collector_paused():
            for _ in range(600):
                node = Node()
                node.me = node
                gone.append(weakref.ref(node))
            del node
    assert full_collections
    assert sum(ref() is None for ref in gone) > len(gone) // 2


def test_what_somebody_froze_is_neither_thawed_nor_counted_again(monkeypatch):
    monkeypatch.setattr(collector, "_pauses", collector._Pauses())
    gc.freeze()
    frozen, counted = gc.get_freeze_count(), []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(0) or frozen)
    for _ in range(5):
        with collector_paused():
            pass
    monkeypatch.undo()
    assert len(counted) == 1 and gc.get_freeze_count()


def test_the_collector_stays_off_where_it_was_off():
    gc.disable()
    try:
        with collector_paused(), collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    with collector_paused(), collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_interrupt_of_a_stage_or_of_its_end_leaves_the_collector_on():
    def stage():
        with collector_paused():
            pass

    def ours(code):
        return code.co_filename == collector.__file__

    total = interrupts.interrupted(stage, 0, ours)[1]
    assert total > 50
    for n in range(1, total + 1):
        interrupts.interrupted(stage, n, ours)
        end_pauses()                                # what passes the interrupt on calls this
        assert gc.isenabled(), n
