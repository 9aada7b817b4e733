"""Plans: calls in order, buffers given back as soon as nobody reads them, errors with a place."""
from __future__ import annotations

import weakref

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.ops import dialect
from shardtrace.ir.program import Equation
from shardtrace.ir.source.location import Location
from shardtrace.runtime.plans import plan
from shardtrace.runtime.plans.plan import PlanBuilder


def test_calls_run_in_order_over_slots():
    b = PlanBuilder()
    x, y = b.input(), b.input()
    two = b.constant(2.0)
    s = b.call(np.add, (x, y))
    p = b.call(np.multiply, (s, two))
    q, r = b.call_several(lambda v: [v, -v], (p,), 2)
    none = b.call(lambda: 7.0, ())
    plan = b.finish([r, q, two, none])
    assert plan.run([1.0, 2.0]) == [-6.0, 6.0, 2.0, 7.0]
    assert plan.run([0.0, 1.0]) == [-2.0, 2.0, 2.0, 7.0]


def test_a_buffer_dies_after_its_last_reader():
    seen = []

    def make(v):
        out = np.array([v])
        seen.append(weakref.ref(out))
        return out

    b = PlanBuilder()
    x = b.input()
    first = b.call(make, (x,))
    second = b.call(lambda a: a + 1, (first,))
    third = b.call(lambda a: (a * 2, seen[0]() is None), (second,))
    _, dead = b.finish([third]).run([1.0])[0]
    assert dead


def test_results_nobody_reads_are_dropped():
    b = PlanBuilder()
    x = b.input()
    kept = []
    b.call(lambda v: kept.append(v) or np.zeros(1), (x,))
    assert b.finish([x]).run([3.0]) == [3.0] and kept == [3.0]


def test_numpy_does_not_warn_within_a_plan():
    b = PlanBuilder()
    x = b.input()
    plan = b.finish([b.call(np.log, (x,))])
    with np.errstate(all="raise"):
        assert np.isneginf(plan.run([np.float32(0)])[0])


def test_the_wrong_number_of_arguments_is_an_error():
    b = PlanBuilder()
    b.input()
    with pytest.raises(ValueError):
        b.finish([]).run([])


def test_an_error_names_the_equation_at_work():
    eqn = Equation(dialect.OPS["neg"], (), (), {}, Location.at("train.py", 7, 3))
    b = PlanBuilder()
    slot = b.call(lambda: 1 // 0, (), eqn)
    with pytest.raises(ZeroDivisionError) as caught:
        b.finish([slot]).run([])
    assert caught.value.__notes__ == ["while running `neg` of train.py:7:4"]


def test_a_long_plan_is_written_out_only_once_that_has_paid(monkeypatch):
    monkeypatch.setattr(plan, "LONG", 3)
    monkeypatch.setattr(plan, "MANY", 5)
    written, generate = [], plan.generate
    monkeypatch.setattr(plan, "generate", lambda *args: (written.append(runs), generate(*args))[1])
    x = np.ones((2, 2), np.float32)
    short, long = st.jit(lambda x: jnp.sin(x) + 1), st.jit(lambda x: jnp.sin(x) * 2 + 1)
    for runs in range(8):      # noqa: B007
        np.testing.assert_allclose(short(x), np.sin(x) + 1, rtol=1e-6)
        np.testing.assert_allclose(long(x), np.sin(x) * 2 + 1, rtol=1e-6)
    assert written == [plan.FEW, 5]
