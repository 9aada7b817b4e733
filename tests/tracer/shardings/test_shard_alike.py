"""Values that are laid out alike, whichever of the two has a sharding."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.experimental.shard_alike import shard_alike
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P
from tests.executors import EXECUTORS

X = np.arange(16.0, dtype=np.float32).reshape(8, 2)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_has_no_sharding_gets_that_of_the_other(executor):
    mesh = st.make_mesh((2, 2), ("x", "y"))
    x = st.device_put(X, NamedSharding(mesh, P("x", "y")))

    def f(x):
        return shard_alike(x, jnp.arange(16.0).reshape(8, 2) + 1)

    with st.config.override(shardtrace_engine=executor):
        a, b = st.jit(f)(x)
        c, d = st.jit(lambda x: f(x)[::-1])(x)
        eager = f(x)[1]
    for out in (a, b, c, d, eager):
        assert out.sharding.is_equivalent_to(x.sharding, 2)
    np.testing.assert_array_equal(b, X + 1)


def test_trees_derivatives_and_batches():
    tree = {"a": jnp.ones(4), "b": (jnp.zeros((2, 3)),)}
    assert st.tree.structure(shard_alike(tree, tree)[1]) == st.tree.structure(tree)

    def f(x):
        a, b = shard_alike(x, 2 * x)
        return (a * b).sum()

    np.testing.assert_array_equal(st.grad(f)(jnp.arange(3.0)), 4 * np.arange(3))
    np.testing.assert_array_equal(st.vmap(f)(jnp.arange(6.0).reshape(2, 3)), [10, 100])
    np.testing.assert_array_equal(
        st.vmap(lambda x: shard_alike(x, jnp.ones(3))[1])(jnp.zeros((2, 3))), np.ones((2, 3)))


def test_shapes_and_structures_must_match():
    with pytest.raises(ValueError, match="leaves shapes of `x` and `y` should match"):
        shard_alike(jnp.ones(3), jnp.ones(4))
    with pytest.raises(ValueError, match="Trees should be equal"):
        shard_alike(jnp.ones(3), (jnp.ones(3),))
