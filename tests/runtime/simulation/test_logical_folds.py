"""Whether all or any of a split array hold is asked of the whole array, where only that is seen."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

X = np.random.default_rng(0).normal(size=(16, 24)).astype(np.float32)


pytestmark = pytest.mark.usefixtures("executor")


@rows("axis", [None, 0, 1])
@rows("spec", [P("a", "b"), P(None, ("a", "b")), P("b"), P(("a", "b"), None)])
def test_all_and_any_of_a_split_array(axis, spec):
    mesh = st.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    with st.set_mesh(mesh):
        x = st.device_put(X, st.NamedSharding(mesh, spec))
        for bound in (-9.0, -2.5, -1.0, 0.0, 2.5, 9.0):
            f = st.jit(lambda x, bound=bound: (jnp.all(x > bound, axis), jnp.any(x > bound, axis)))
            for got, want in zip(f(x), ((X > bound).all(axis), (X > bound).any(axis)), strict=True):
                np.testing.assert_array_equal(got, want)


def test_what_devices_hold_is_seen_too():
    mesh = st.make_mesh((8,), ("a",), axis_types=(AxisType.Auto,))

    def f(x):
        own = jnp.all(x > -1.5)
        some = jnp.any(x > 1.5)
        return lax.pmin(own, "a"), lax.pmax(own, "a"), own[None], lax.pmin(some, "a")

    with st.set_mesh(mesh):
        g = st.jit(st.shard_map(f, mesh=mesh, in_specs=P("a"), out_specs=(P(), P(), P("a"), P())))
        blocks = X.reshape(8, 2, 24)
        own, some = (blocks > -1.5).all((1, 2)), (blocks > 1.5).any((1, 2))
        for got, want in zip(g(X), (own.all(), own.any(), own, some.all()), strict=True):
            np.testing.assert_array_equal(got, want)
