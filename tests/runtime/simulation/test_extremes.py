"""Extremes over devices of what each device's own are, taken at once."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.runtime.simulation import workspace
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...executors import forget_plans

MESH = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
X = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)


@pytest.fixture
def combined(monkeypatch):
    """Which dimensions of devices were combined after each device had its own."""
    found = []
    reduce = workspace._reduction
    monkeypatch.setattr(workspace, "_reduction", lambda *args: (
        found.append(args[3]), reduce(*args))[1])
    return found


def greatest(x):
    return lax.pmax(x.max((0, 1), keepdims=True).T[None], ("x", "y"))


def least(x):
    return lax.pmin(x.min((0, 1)).reshape(1, 1), ("x", "y"))


@pytest.mark.parametrize("spec", [P(None, "x"), P("x"), P("x", "y"), P(("x", "y"), None)])
@pytest.mark.parametrize(("body", "plain"), [(greatest, np.max), (least, np.min)])
def test_of_another_shape(body, plain, spec, combined):
    forget_plans()
    run = st.shard_map(body, mesh=MESH, in_specs=spec, out_specs=P(), check_vma=False)
    assert np.asarray(st.jit(run)(X)).item() == plain(X)
    assert not any(combined)
    with st.config.override(shardtrace_engine="per_device"):
        assert np.asarray(st.jit(run)(X)).item() == plain(X)


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
def test_that_something_else_reads(executor):
    def body(x):
        own = x.max(-1, keepdims=True)
        return lax.pmax(own, "y"), own, lax.psum(own * 2, "y")
    run = st.shard_map(body, mesh=MESH, in_specs=P("x", "y"),
                       out_specs=(P("x"), P("x", "y"), P("x")))
    with st.config.override(shardtrace_engine=executor):
        most, own, total = st.jit(run)(X)
    want = X.reshape(8, 4, 4).max(-1)
    np.testing.assert_array_equal(own, want)
    np.testing.assert_array_equal(most, want.max(-1, keepdims=True))
    np.testing.assert_allclose(total, 2 * want.sum(-1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
def test_softmax_over_devices(executor):
    def body(x):
        e = jnp.exp(x - lax.pmax(x.max(-1, keepdims=True), "y"))
        return e / lax.psum(e.sum(-1, keepdims=True), "y")
    run = st.shard_map(body, mesh=MESH, in_specs=P("x", "y"), out_specs=P("x", "y"))
    with st.config.override(shardtrace_engine=executor):
        got = st.jit(run)(X)
    e = np.exp(X - X.max(-1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), rtol=1e-5)
