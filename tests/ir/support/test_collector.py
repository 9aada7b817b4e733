"""The garbage collector rests while programs are built; what lies in cycles goes all the same."""
import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import shardtrace as st
from shardtrace.driver.execution import bound_program
from shardtrace.ir.support import collector
from shardtrace.ir.support.collector import collector_paused, end_pauses

from ... import interrupts
from ...paths import ROOT

pytestmark = pytest.mark.usefixtures("only_own_objects")


class Node:
    """Something that can hold itself."""


def full_collections(stage: Callable[[], None], times: int) -> int:
    """How many times all objects are looked through in stages, a thousand new ones being many."""
    gc.collect()
    collector._FULL_COLLECTION, collector._pauses = 1_000, collector._Pauses()
    with collector_paused():                        # the first time says how many blocks there are
        made = [[] for _ in range(3_000)]
    del made
    seen = []

    def note(phase, info):
        if phase == "stop" and info["generation"] == 2:
            seen.append(info)

    gc.callbacks.append(note)
    for _ in range(times):
        stage()
    gc.callbacks.remove(note)
    return len(seen)


def counted() -> dict[str, list[int]]:
    """Full collections of stages of three kinds; for cycles, how many have gone and of how many."""
    staying, gone = [], []

    def passing():
        with collector_paused():
            made = [[] for _ in range(3_000)]
        del made

    def stays():
        with collector_paused():
            staying.append([[] for _ in range(3_000)])

    def cycles():
        with collector_paused():
            for _ in range(600):
                node = Node()
                node.me = node
                gone.append(weakref.ref(node))
            del node

    return {"passing": [full_collections(passing, 10)], "staying": [full_collections(stays, 4)],
            "cycles": [full_collections(cycles, 5), sum(ref() is None for ref in gone), len(gone)]}


@pytest.fixture(scope="module")
def counts() -> dict[str, list[int]]:
    """Counted in a process with few objects: to look through all of the suite's takes a second."""
    done = subprocess.run(
        [sys.executable, "-c", "import json; from tests.ir.support import test_collector as t; "
         "print(json.dumps(t.counted()))"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_goes_by_itself_is_not_looked_for(counts):
    assert counts["passing"] == [0]


def test_what_stays_is_looked_through_now_and_then(counts):
    assert counts["staying"] in ([3], [4])


def test_most_reference_cycles_are_collected(counts):
    times, gone, all_of_them = counts["cycles"]
    assert times and gone > all_of_them // 2


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


def test_it_pauses_while_a_program_is_planned(monkeypatch):
    on, plan = [], bound_program.compile_simulated
    monkeypatch.setattr(bound_program, "compile_simulated",
                        lambda *given: on.append(gc.isenabled()) or plan(*given))
    st.jit(lambda x: x * 3 - 1)(np.ones(7, np.float32))
    assert on == [False] and gc.isenabled()


def test_an_interrupt_of_a_stage_or_of_its_end_leaves_the_collector_on():
    def stage():
        with collector_paused():
            pass

    def ours(code):
        return code.co_filename == collector.__file__

    total = interrupts.interrupted(stage, 0, ours)[1]
    assert total > 10
    for n in range(1, total + 1):
        interrupts.interrupted(stage, n, ours)
        end_pauses()                                # what passes the interrupt on calls this
        assert gc.isenabled(), n
