"""Derivatives of an equation whose kind was seen before are those that its rule would give."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.tracer.autodiff import rule_memo

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
FUNCTIONS = {
    "a product with itself": lambda x, y: (x * x).sum(),
    "a product": lambda x, y: (x * y).sum(),
    "a product with a moving multiple": lambda x, y: ((x + 1) * (x + 2)).sum(),
    "a product with what moves alike": lambda x, y: (x * (x + 1)).sum(),
    "a number": lambda x, y: (x * 2.0 + x / 3.0).sum(),
    "another number": lambda x, y: (x * 5.0 + x / 7.0).sum(),
    "zeros of both signs": lambda x, y: (x * 0.0).sum() + (x * -0.0).sum(),
    "a power": lambda x, y: (x ** 2).sum(), "another power": lambda x, y: (x ** 3).sum(),
    "a mean": lambda x, y: jnp.mean(nn_like(x) @ y.T),
    "choices": lambda x, y: jnp.where(x > 0, x, y).sum() + jnp.maximum(x, y).max(),
    "what it closes over": lambda x, y: (x * X).sum() + (x * jnp.asarray(X[:1])).sum(),
    "indices": lambda x, y: x[1].sum() + x[:, 2:3].sum() * y[0, 0],
    "a derivative of second order": lambda x, y: st.grad(lambda v: (v * v * y).sum())(x).sum(),
    "a loop": lambda x, y: lax.scan(lambda c, v: (jnp.tanh(c * v), c), x[0], y)[1].sum(),
}


def nn_like(x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def program(f: Any, word: str) -> Any:
    """A derivative, traced anew."""
    def derived(x: Any, y: Any) -> Any:
        if word == "jvp":
            return st.jvp(lambda *v: f(*v), (x, y), (y, x))
        return st.value_and_grad(lambda *v: f(*v), (0, 1))(x, y)
    return st.jit(derived).trace(X, X + 1).jaxpr


@pytest.mark.parametrize("word", ["gradient", "jvp"])
def test_programs_are_those_of_the_rules(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):                  # what one made, the others find
        found = {name: program(f, word) for name, f in FUNCTIONS.items()}
    monkeypatch.setattr(rule_memo.RuleMemo, "place", lambda *_: None)
    for name, f in FUNCTIONS.items():
        assert programs_equal(found[name], program(f, word)), name


def test_a_rule_runs_once_for_equations_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(x: Any) -> Any:
        for _ in range(50):
            x = jnp.tanh(x) * 1.5
        return x.sum()

    st.clear_caches()
    noted = []
    real = rule_memo.steps_since
    monkeypatch.setattr(rule_memo, "steps_since", lambda *a: noted.append(0) or real(*a))
    st.jit(st.grad(deep)).trace(X)
    assert len(noted) <= 9              # tanh, mul, sum; forward and backward, and at their ends
