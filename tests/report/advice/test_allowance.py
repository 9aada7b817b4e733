"""The search for advice is bounded by counted work, and what it found so far is kept when it ends.
"""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.driver.analysis.explain import explain_program
from shardtrace.report.advice import trials as advice_trials
from shardtrace.sharding import PartitionSpec as P


@pytest.fixture
def text():
    def f(x, ws):
        for w in ws:
            x = jnp.tanh(x @ w)
        return x

    x = np.ones((64, 64), np.float32)
    with st.set_mesh(st.make_mesh((2, 4), ("X", "Y"))):
        return str(st.jit(f).trace(x, [x] * 3).jaxpr)


def explained(text, **options):
    program = st.parse_program(text)
    return explain_program(program, in_shardings=[P("X"), *[P(None, "Y")] * 3], **options)


def trials(text, monkeypatch, **options):
    """The number of trials that an explanation makes, and its text."""
    found = explained(text, **options)
    count = []
    changed = type(found.subject).changed
    monkeypatch.setattr(type(found.subject), "changed",
                        lambda self, *asked: count.append(1) or changed(self, *asked))
    said = found.text(suggestions=8)
    monkeypatch.setattr(type(found.subject), "changed", changed)
    return len(count), said


def test_what_all_trials_take_is_bounded(text, monkeypatch):
    free, _ = trials(text, monkeypatch, trials=48)
    each = advice_trials.work(len(explained(text).partitioned.traced.eqns) + 4, 2, plans=1)
    seconds = 12 * each / advice_trials.RATE
    count, said = trials(text, monkeypatch, suggest_seconds=seconds)
    assert 1 < count <= 14 < free
    assert "tries them" in said
    assert trials(text, monkeypatch, suggest_seconds=seconds)[1] == said


def test_no_time_is_no_trials(text, monkeypatch):
    count, said = trials(text, monkeypatch, suggest_seconds=0)
    assert count == 0 and "the first 0 were tried" in said


def test_more_axes_are_more_work():
    work = advice_trials.work
    assert work(10, 8) == 8 * work(10, 2) == 8 * work(10, 1)


def test_an_interrupt_ends_the_search_and_keeps_what_was_found(text, monkeypatch):
    found = explained(text)
    changed, count = type(found.subject).changed, []

    def interrupted(self, *asked):
        count.append(1)
        if len(count) == 20:
            raise KeyboardInterrupt
        return changed(self, *asked)

    monkeypatch.setattr(type(found.subject), "changed", interrupted)
    dearest = max(found.collectives, key=lambda c: c.total_time)
    search = dearest.search
    assert search.stopped and search.suggestions and search.tried < search.candidates
    said = found.text()
    assert len(count) == 20 and "then it was stopped" in said
