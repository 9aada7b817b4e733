"""What is added to sums that are written at indices is added before, in the program of a device."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace import numpy as jnp
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P


def loss(scores, labels):
    return (jnp.exp(scores).sum(-1) - jnp.take_along_axis(scores, labels[:, None], 1)[:, 0]).sum()


@pytest.mark.parametrize("spec", [P("x"), P(None, "x")])
def test_a_gradient_at_labels_is_written_into_the_rest_of_it(spec):
    rng, mesh = np.random.default_rng(0), st.make_mesh((4,), ("x",))
    values, labels = rng.normal(size=(16, 32)).astype(np.float32), rng.integers(0, 32, 16)
    scores = st.device_put(values, NamedSharding(mesh, spec))
    gradient = st.jit(st.grad(loss)).lower(scores, labels).compile()
    (written,) = [e for e in gradient.program.eqns if e.op.name == "scatter-add"]
    assert written.outvars[0] is gradient.program.outvars[0]
    with st.config.override(shardtrace_engine="per_device"):
        found = gradient(scores, labels)
    np.testing.assert_allclose(found, np.exp(values) - np.eye(32)[labels], rtol=1e-5, atol=1e-5)


def test_what_is_read_twice_is_written_apart():
    def f(x, i):
        counts = jnp.zeros(8).at[i].add(1.0)
        return x + counts, counts
    i = np.array([1, 1, 3])
    found, counts = st.jit(f)(np.ones(8, np.float32), i)
    np.testing.assert_array_equal(found, 1 + np.bincount(i, minlength=8))
    np.testing.assert_array_equal(counts, np.bincount(i, minlength=8))
