"""What one device alone lets through, to be summed, is not made for each device."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.runtime.simulation import executor as simulated
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
X, W = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)


def of_one(axes, place, filled=0.):
    def body(x, w):
        alone = jnp.where(lax.axis_index(axes) == place, x, jnp.full_like(x, filled))
        return lax.psum(alone + x[:, :2] @ w, axes)
    return st.jit(st.shard_map(body, mesh=MESH, in_specs=(P(), P(axes)), out_specs=P(),
                               check_vma=False))


@pytest.mark.parametrize(("axes", "place", "filled"), [
    ("y", 0, 0.), ("y", 3, 0.), ("y", 4, 0.), ("y", -1, 0.), ("y", 1, 1.)])
def test_the_sum_is_that_of_devices(monkeypatch, axes, place, filled):
    w = W[:, :8]
    there = X * (0 <= place < 4) + filled * (4 if not 0 <= place < 4 else 3)
    want = there + sum(X[:, :2] @ w[2 * i:2 * i + 2] for i in range(4))
    made = []
    select = simulated.Planner.local
    monkeypatch.setattr(simulated.Planner, "local", lambda p, eqn: (
        made.append(eqn.op.name), select(p, eqn))[1])
    np.testing.assert_allclose(of_one(axes, place, filled)(X, w), want, rtol=1e-4, atol=1e-4)
    assert ("select_n" not in made) == (filled == 0 and 0 <= place < 4)


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
def test_both_executors_agree(executor):
    with st.config.override(shardtrace_executor=executor):
        got = of_one("y", 2)(X, W)
    want = X + sum(X[:, :2] @ W[2 * i:2 * i + 2] for i in range(4))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_what_differs_between_devices_is_selected():
    f = st.jit(st.shard_map(
        lambda x: lax.psum(jnp.where(lax.axis_index("y") == 1, x, jnp.zeros_like(x)), "y"),
        mesh=MESH, in_specs=P("y"), out_specs=P()))
    np.testing.assert_array_equal(f(X), X[2:4])


def test_who_looks_at_it_otherwise_sees_zeros():
    f = st.jit(st.shard_map(
        lambda x: jnp.where(lax.axis_index("y") == 1, x, jnp.zeros_like(x))[None],
        mesh=MESH, in_specs=P(), out_specs=P("y")))
    got = np.asarray(f(X))
    np.testing.assert_array_equal(got[1], X)
    assert not got[[0, 2, 3]].any()
