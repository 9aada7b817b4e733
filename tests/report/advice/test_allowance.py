"""The search for advice on a program that was read as text is bounded by counted work."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.driver.analysis.explain import explain_program
from shardtrace.report.advice import suggestions
from shardtrace.sharding import PartitionSpec as P


@pytest.fixture
def text():
    def f(x, ws):
        for w in ws:
            x = jnp.tanh(x @ w)
        return x

    x = np.ones((64, 64), np.float32)
    with st.set_mesh(st.make_mesh((2, 4), ("X", "Y"))):
        return str(st.jit(f).trace(x, [x] * 4).jaxpr)


def trials(text, monkeypatch, **options):
    """The work of all trials, the number of them, and the explanation as text."""
    program = st.parse_program(text)
    found = explain_program(program, in_shardings=[P("X"), *[P(None, "Y")] * 4], **options)
    count = []
    changed = type(found.subject).changed
    monkeypatch.setattr(type(found.subject), "changed",
                        lambda self, changes: count.append(1) or changed(self, changes))
    said = found.text(suggestions=8)
    each = suggestions.work(len(found._found.candidates.place), 2)
    return len(count) * each, len(count), said


def test_what_all_trials_take_is_bounded(text, monkeypatch):
    most = suggestions.WORK_ON_TEXT
    free = trials(text, monkeypatch, trials=suggestions.SINGLES)
    monkeypatch.setattr(suggestions, "_TRIAL", most // 8)
    work, count, said = trials(text, monkeypatch)
    assert 1 < count < free[1] and work < most + 3 * most // 8
    assert "tries them" in said
    assert trials(text, monkeypatch)[2] == said


def test_more_axes_are_more_work():
    assert suggestions.work(10, 8) == 16 * suggestions.work(10, 2) == 16 * suggestions.work(10, 1)
