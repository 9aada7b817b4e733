"""Kinds of programs, each on all engines."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, random
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from .conftest import X, on_each, put

pytestmark = pytest.mark.every_engine


@pytest.mark.parametrize("dtype", [
    np.int8, np.uint16, np.int32, np.bool_, np.float16, ml_dtypes.bfloat16, np.complex64,
    ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4])
def test_values_of_every_dtype_are_stored_and_moved_unchanged(dtype, mesh):
    x = put(mesh, (X * 7).astype(dtype), "x")
    on_each(lambda x: (x, jnp.flip(x, 0), x.T.reshape(64, 2), jnp.where(x == x[0], x, x[::-1])),
            x, tolerance=0)


def test_numbers_of_64_bits(mesh):
    with st.enable_x64(True):
        x = put(mesh, np.linspace(0, 1, 128).reshape(16, 8), "x", "y")
        found = on_each(lambda x: (x.sum(), jnp.argsort(x[:, 0]).astype(np.int64)), x,
                        tolerance=1e-13)
    assert found[0].dtype == np.float64 and found[1].dtype == np.int64


def test_random_bits_are_the_same_however_they_are_split(mesh):
    keys = random.split(random.key(7), 16)
    on_each(lambda k: (random.uniform(k[3], (16, 8), out_sharding=None),
                       random.bits(k[0], (64,), "uint16"), random.split(k[1], 8),
                       random.fold_in(k[2], 5), random.permutation(k[4], 16)),
            put(mesh, keys, "x"), tolerance=1e-6)
    sharding = NamedSharding(mesh, P("x", "y"))
    on_each(lambda k: (random.normal(k, (16, 8)), random.bits(k, (16, 8), "uint8"),
                       random.split(k, (16, 8))),
            random.key(1), out_shardings=(sharding,) * 3, tolerance=2e-5)
    on_each(lambda k: random.normal(k, (16, 8)), random.key(3, impl="rbg"), tolerance=1e-6)


@pytest.mark.slow
def test_gamma_numbers_are_the_same_however_they_are_split(mesh):
    for spec in (P(), P("x", "y")):
        on_each(lambda k: random.gamma(k, 2.5, (16, 8)), random.key(1),
                out_shardings=NamedSharding(mesh, spec), tolerance=2e-5)


def test_loops_and_branches(mesh):
    def f(x, w):
        def body(c, row):
            c = jnp.tanh(c @ w + row)
            return c, c.sum()

        c, sums = lax.scan(body, x, jnp.ones((3, 8)), reverse=True)
        n, c = lax.while_loop(lambda s: (s[0] < 5) & (s[1].sum() < 1e6),
                              lambda s: (s[0] + 1, s[1] * 2), (0, c))
        c = lax.fori_loop(0, n, lambda i, c: c + i, c)
        return lax.switch(n - 4, [lambda c: c, lambda c: -c, lambda c: c.T.T * 3], c), sums, n

    on_each(f, put(mesh, X, "x", "y"), put(mesh, X[:8] * 0.1, "y"))


def test_derivatives_and_calls_with_rules_of_their_own(mesh):
    @st.custom_vjp
    def twice(x):
        return x * 2

    twice.defvjp(lambda x: (x * 2, None), lambda _, g: (g * 3,))
    loss = st.checkpoint(lambda w, x: (twice(jnp.sin(x @ w)) ** 2).mean())
    on_each(st.grad(loss), put(mesh, X[:8], "y"), put(mesh, X, "x", "y"))


def test_sizes_that_axes_do_not_divide(mesh):
    def f(x):
        y = x[1:] @ x[:7].T
        return y.sum(0), jnp.concatenate([x[3:], x[:2]]).mean(1), jnp.pad(x, ((1, 2), (0, 0)))

    on_each(f, put(mesh, X, "x"))


def test_parts_of_axes(jax):
    mesh = st.make_mesh((8,), ("x",))
    on_each(lambda x: (x.reshape(2, 8, 8).sum(1), x.reshape(4, 4, 8).transpose(1, 0, 2) + 1),
            put(mesh, X, "x"))


def test_memory_of_the_host(mesh):
    x = put(mesh, X, "x")
    found = on_each(lambda x: st.device_put(x * 2, st.memory.Space.Host), x)
    assert found[0].sharding.memory_kind == "pinned_host"


def test_custom_partitioning_runs_on_every_engine(mesh):
    from shardtrace.experimental.custom_partitioning import custom_partitioning

    @custom_partitioning
    def doubled(x):
        return x * 2

    doubled.def_partition(
        lambda mesh, args, result: (mesh, lambda x: x * 2, args[0].sharding, (args[0].sharding,)),
        sharding_rule="i j -> i j")
    np.testing.assert_allclose(on_each(doubled, put(mesh, X, "x"))[0], X * 2)
