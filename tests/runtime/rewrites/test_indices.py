"""Indices that are never negative, and others."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.runtime.rewrites.pipeline import run_execution_passes

X = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
AT = np.array([2, -1, 0, -5], np.int32)


def ops(f: Any, *args: Any) -> list[str]:
    return [e.op.name for e in run_execution_passes(st.jit(f).trace(*args).jaxpr.jaxpr).eqns]


@pytest.mark.parametrize("f", [
    lambda x, i: x[jnp.argmax(x, 0)], lambda x, i: x[jnp.arange(4)[::1]],
    lambda x, i: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    lambda x, i: jnp.take_along_axis(x, lax.top_k(x, 2)[1], 1),
    lambda x, i: jnp.bincount(i, length=3), lambda x, i: x[jnp.clip(i, 0, 3)],
    lambda x, i: x[jnp.argmin(x, 1).reshape(2, 3).T]])
def test_what_is_never_negative_is_not_compared(f: Any) -> None:
    assert not {"lt", "select_n"} & {*ops(f, X, AT)}
    with st.config.override(shardtrace_skip="count-from-front"):
        want = st.jit(lambda *a: f(*a))(X, AT)
    np.testing.assert_array_equal(st.jit(f)(X, AT), want)


@pytest.mark.parametrize("f", [
    lambda x, i: x[i], lambda x, i: x[jnp.sort(i)], lambda x, i: x[lax.top_k(i, 2)[0]],
    lambda x, i: x[jnp.maximum(i, -2)], lambda x, i: x[jnp.clip(i, -3, 2)],
    lambda x, i: x[lax.sort((jnp.arange(4), i))[1]], lambda x, i: x[jnp.arange(4) - 2],
    lambda x, i: x[jnp.clip(i, 0, -1)]])
def test_what_may_be_negative_counts_from_the_end(f: Any) -> None:
    assert "lt" in ops(f, X, AT)
    np.testing.assert_array_equal(st.jit(f)(X, AT), f(jnp.asarray(X), jnp.asarray(AT)))
