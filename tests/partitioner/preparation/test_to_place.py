"""Concatenations of slices stay what they were: weak types, values that vary, derivatives."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def split(kind=AxisType.Auto):
    mesh = st.make_mesh((4, 2), ("a", "b"), axis_types=(kind,) * 2)
    return mesh, st.device_put(X, NamedSharding(mesh, P("a")))


@pytest.mark.parametrize("before", [
    lambda a: lax.full((8, 2), -7.0),                     # weak, and one value throughout
    lambda a: lax.slice_in_dim(a, 2, 4, axis=1),          # weak, a slice
    lambda a: jnp.zeros((8, 2)),                          # strong
])
def test_pieces_of_weak_type_are_shifted(before):
    _, x = split()

    def f(x):
        a = lax.exp(lax.full((8, 8), -1.0))
        assert a.weak_type
        return jnp.concatenate([before(a), lax.slice_in_dim(a, 0, 6, axis=1)], axis=1) + x

    np.testing.assert_allclose(st.jit(f)(x), f(X), rtol=1e-6)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("axis_names", [{"a"}, {"a", "b"}])
def test_values_that_vary_are_shifted_in_shard_map(kind, axis_names):
    mesh, x = split(kind)

    def body(x):
        return jnp.concatenate([x[:, 2:4], jnp.zeros((len(x), 1)), x[:, :5]], axis=1)

    f = st.shard_map(body, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names=axis_names)
    expected = np.concatenate([X[:, 2:4], np.zeros((8, 1)), X[:, :5]], axis=1)
    with st.set_mesh(mesh):
        np.testing.assert_array_equal(st.jit(f)(x), expected)
        slope = st.jit(st.grad(lambda x: jnp.sum(f(x) ** 2)))(x)
    uses = np.array([1, 1, 2, 2, 1, 0, 0, 0])
    np.testing.assert_array_equal(slope, 2 * X * uses)


@pytest.mark.parametrize("axis, shape", [(0, (0,)), (1, (3, 0)), (0, (0, 4)), (1, (0, 4))], ids=str)
def test_nothing_beside_nothing_is_put_together(axis, shape):
    x = st.device_put(np.zeros(shape, np.float32), NamedSharding(split()[0], P()))
    y = st.jit(lambda x, y: jnp.concatenate([x, y], axis))(x, x + 1)
    np.testing.assert_array_equal(y, np.zeros(np.concatenate([x, x], axis).shape, np.float32))


def test_one_value_beside_nothing_is_that_value():
    f = st.jit(st.grad(lambda x: jnp.split(x.reshape(1, 1), [1, 1], axis=1)[0].sum()))
    assert f(np.float32(3)) == 1


def test_rows_taken_of_weak_values_are_weak():
    mesh = st.make_mesh((2, 3), ("a", "b"), devices=st.devices()[:6])
    x = st.device_put(np.arange(12).reshape(6, 2).astype(np.int32), NamedSharding(mesh, P("b")))

    @st.jit
    def f(x):
        weak = jnp.take(jnp.where(x > 0, x, -1.5), np.array([5]), axis=0, mode="fill")
        assert weak.weak_type
        return jnp.reciprocal(weak)

    np.testing.assert_allclose(f(x), [[1 / 10, 1 / 11]], rtol=1e-6)


@pytest.mark.parametrize("update", [
    lambda x: x.at[3:7].set(2.0), lambda x: x.at[-1].set(2.0), lambda x: x.at[0].set(1.0)])
def test_an_update_of_few_rows_leaves_the_others_alone(update):
    _, x = split()
    compiled = st.jit(update).lower(st.ShapeDtypeStruct(
        (4096, 256), "float32", sharding=x.sharding)).compile()
    assert not compiled.collectives() and compiled.cost_analysis()["flops"] < 4096 // 4
    np.testing.assert_array_equal(st.jit(update)(x), np.asarray(update(jnp.asarray(X))))
