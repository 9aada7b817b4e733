"""Whether a rank waits in vain, by what it has heard of the others."""
from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from shardtrace.arrays.processes.deadlocks import ProcessStatus, State
from shardtrace.engines.mpi.status import RankStatus, _Heard

HERE, THERE = "abc 1 0 1", "abc 1 4 1"


def waits(place: str, *peers: int, since: float = 2, last: float = 0.1) -> Any:
    return _aged(_Heard(ProcessStatus(State.WAITING), 1, place, peers), since, last)


def over(state: State, place: str = "", last: float = 1) -> Any:
    return _aged(_Heard(ProcessStatus(state), 1, place, ()), last, last)


def _aged(heard: Any, since: float, last: float) -> Any:
    now = time.monotonic()
    heard.since, heard.last = now - since, now - last
    return heard


def raised_and_ended() -> Any:
    heard = over(State.ENDED)
    heard.failed = "abc 1", ProcessStatus(State.FAILED, error="KeyError")
    return heard


# what rank 0, which has waited for rank 1 for a second, has heard of ranks 1 and 2
@pytest.mark.parametrize(("others", "wanted"), [
    ((None, None), False),                                   # they compute
    ((over(State.ENDED), None), True),
    ((over(State.ENDED, last=0.02), None), False),           # what it sent may be on its way
    ((over(State.FAILED), None), True),
    ((over(State.FAILED, "other 3"), None), False),          # elsewhere: it may have gone on
    ((over(State.FAILED, "abc 1"), None), True),
    ((raised_and_ended(), None), True),
    ((waits(HERE, 0), None), False),                         # on its way
    ((waits(HERE, 2), waits(THERE, 0)), False),
    ((waits(THERE, 0), None), True),
    ((waits(THERE, 0, last=1.5), None), False),              # before this rank began to wait
    ((waits(THERE, 0, since=0.12, last=0.1), None), False),  # may have been let go
    ((waits(THERE, 0, last=9), None), False),                # long silent: it computes
    ((waits(THERE, 2), None), False),                        # for one that computes
    ((waits(THERE, 2), over(State.ENDED)), True),
    ((waits(THERE, 2), waits("abc 1 7 1", 0, 1)), True),
    ((waits(THERE, 2), waits(THERE, 0)), False),
    ((waits(THERE, 2), waits(HERE, 0)), False),
    ((over(State.RUNNING), None), False),
])
def test_a_wait_is_in_vain_where_nobody_can_come(others: tuple, wanted: bool) -> None:
    status = RankStatus(SimpleNamespace(rank=0, size=3, Dup=lambda: None))
    for i, heard in enumerate(others, 1):
        if heard is not None:                                # parameters are made when collected
            shift = time.monotonic() - COLLECTED
            heard.since, heard.last = heard.since + shift, heard.last + shift
        status.heard[i] = heard
    assert status.in_vain({1}, HERE, time.monotonic() - 1) is wanted


COLLECTED = time.monotonic()
