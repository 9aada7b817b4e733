"""Phases: what is recorded where, that parts add up, and that nothing is recorded unasked."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.settings.context import STATE
from shardtrace.ir.settings.phases import PhaseProfile, phase


def step(w, x):
    return w - 0.1 * st.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)


def square(n: int) -> np.ndarray:
    return np.ones((n, n), np.float32)


def test_a_first_call_has_every_phase_and_a_second_one_only_runs() -> None:
    f = st.jit(step)
    with st.profile_phases() as first:
        f(square(4), square(4))
    with st.profile_phases() as second:
        f(square(4), square(4))
    paths = [row.path for row in first.rows]
    assert [p for p in paths if len(p) == 1] == [("trace",), ("partition",), ("plan",), ("run",)]
    assert {("trace", "linearize"), ("trace", "transpose"), ("partition", "propagate"),
            ("partition", "insert-reshards", "choose"), ("partition", "verify"),
            ("partition", "dedupe")} <= set(paths)
    assert [row.path for row in second.rows] == [("run",)]


def test_a_whole_takes_as_long_as_itself_and_its_parts() -> None:
    st.clear_caches()                   # the step is to be partitioned here
    with st.profile_phases() as profile:
        st.jit(step)(square(4), square(4))
    for row in profile.rows:
        parts = [r.seconds for r in profile.rows if r.path[:-1] == row.path]
        assert row.own + sum(parts) == pytest.approx(row.seconds)
        assert row.own >= 0


def test_equations_and_rules_are_counted() -> None:
    def f(x):
        for _ in range(10):
            x = jnp.tanh(x) * x
        return x
    with st.profile_phases() as first:
        traced = st.jit(f).trace(np.ones((3, 17), np.float32))
    with st.profile_phases() as second:
        st.jit(lambda x: f(x)).trace(np.ones((3, 17), np.float32))
    assert first.row("trace").equations == len(traced.jaxpr.eqns) == 20
    assert second.row("trace").rules == 0 < first.row("trace").rules <= 4


def test_the_table_and_the_data_say_the_same() -> None:
    st.clear_caches()
    with st.profile_phases() as profile:
        st.jit(step)(square(4), square(4))
    data = json.loads(json.dumps(profile.to_dict()))["phases"]
    assert [row["path"] for row in data] == [list(row.path) for row in profile.rows]
    lines = str(profile).splitlines()
    for row in data:
        assert any(row["path"][-1] in line for line in lines)
    assert profile.seconds["verify"] == pytest.approx(
        sum(row["seconds"] for row in data if row["path"][-1] == "verify"))


def test_an_error_ends_its_phases() -> None:
    def wrong(x):
        raise ValueError("wrong")
    with st.profile_phases() as profile:
        with pytest.raises(ValueError, match="wrong"):
            st.jit(wrong)(1.0)
        st.jit(lambda x: x + 1)(1.0)
    assert profile.row("trace").calls == 2


def test_nobody_is_recorded_unasked_nor_another_thread() -> None:
    assert STATE.phases is None
    with st.profile_phases() as profile:
        thread = threading.Thread(target=lambda: st.jit(lambda x: x + 2)(1.0))
        thread.start()
        thread.join()
        with st.profile_phases() as inner, phase("own", 3):
            pass
    assert STATE.phases is None
    assert profile.rows == []
    assert (inner.row("own").calls, inner.row("own").equations) == (1, 3)


def test_profiles_add_up() -> None:
    with st.profile_phases() as a, phase("x", 2):
        pass
    with st.profile_phases() as b, phase("x", 3):
        pass
    whole = PhaseProfile()
    whole.add(a)
    whole.add(b)
    assert (whole.row("x").calls, whole.row("x").equations) == (2, 5)
    assert whole.row("x").seconds == a.row("x").seconds + b.row("x").seconds


def test_the_setting_records_a_whole_process_with_its_threads() -> None:
    script = ("import threading, shardtrace as st\n"
              "t = threading.Thread(target=lambda: st.jit(lambda x: x * 2)(1.0))\n"
              "t.start(); t.join()\n"
              "st.jit(lambda x: x + 1)(1.0)\n")
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                         env={**os.environ, "SHARDTRACE_PROFILE": "1"}, check=True)
    (line,) = [s for s in run.stderr.splitlines() if " trace " in s]
    assert line.split("│")[2].strip() == "2"
