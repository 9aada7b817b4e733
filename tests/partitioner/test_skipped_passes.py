"""Programs mean the same whichever pass is left out, on devices that compute each for itself."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.driver.execution.programs import run_program
from shardtrace.partitioner.passes import PIPELINE
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

X = np.arange(128, dtype=np.float32).reshape(16, 8) / 64 - 1
W = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def moved(x, w):
    y = jnp.concatenate([x[3:], x[:3]]) + jnp.concatenate([jnp.zeros((1, 8)), x[:-1]])
    a, b = jnp.split(y, [6], axis=0)
    return (y[1:] - y[:-1]).sum(0), a.at[2:4].set(b[:2]), jnp.pad(x, ((1, 1), (0, 0)))[2:], w[2::2]


def looped(x, w):
    def body(c, row):
        return jnp.tanh(c @ w.sum(0, keepdims=True).T @ row[None]) + c, c.sum()
    return st.grad(lambda w: lax.scan(body, x @ w, x)[0].sum())(w), lax.scan(body, x, x)


def summed(x, w):
    y = lax.with_sharding_constraint(x @ w, P("a", "b"))
    z = lax.with_sharding_constraint(y, P(None, None))
    return lax.with_sharding_constraint(z, P("a", "b")) @ w.T, (x @ w).max(), (x @ w).min(0), z + z


@pytest.mark.parametrize("name", ["optimize", *[
    step.name for step in PIPELINE if step.may_be_skipped]])
def test_results_without_a_pass(name):
    mesh = st.make_mesh((4, 2), ("a", "b"))
    args = (st.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(mesh, P("a"))),
            st.ShapeDtypeStruct(W.shape, W.dtype, sharding=NamedSharding(mesh, P("b", "a"))))
    for f in (moved, looped, summed):
        with st.set_mesh(mesh):
            wanted = st.tree.leaves(st.jit(f)(X, W))
            with st.config.override(shardtrace_skip=name):
                local = st.jit(f).lower(*args).compile().program
        assert local.attributes["without"] == (name,)
        results = run_program(local, [X, W], "per_device")
        for got, want in zip(results, wanted, strict=True):
            np.testing.assert_allclose(got, np.asarray(want), rtol=2e-4, atol=1e-4)
