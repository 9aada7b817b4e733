"""What only results that nobody reads need is not computed."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import NamedSharding, PartitionSpec

MESH = st.make_mesh((2, 4), ("x", "y"))
A = np.random.default_rng(0).normal(size=(8, 6, 6)).astype(np.float32)
A = A + A.swapaxes(1, 2)
VALUES = np.linalg.eigvalsh(A)


@pytest.fixture
def asked(monkeypatch):
    """How often numpy's routines are called, and with what."""
    calls = []
    for name in ("eigh", "eigvalsh", "svd", "qr"):
        function = getattr(np.linalg, name)

        def listening(*args, function=function, name=name, **kwargs):
            calls.append((name, *args[1:], *kwargs.values()))
            return function(*args, **kwargs)
        monkeypatch.setattr(np.linalg, name, listening)
    return calls


@pytest.mark.parametrize(("function", "wanted", "call"), [
    (jnp.linalg.eigvalsh, VALUES, ("eigvalsh", "L")),
    (lambda a: jnp.linalg.svd(a)[1], np.linalg.svd(A)[1], ("svd", False)),
    (lambda a: abs(jnp.linalg.qr(a, mode="r")), abs(np.linalg.qr(A, "r")), ("qr", "r"))])
def test_factors_that_nobody_reads_are_not_computed(function, wanted, call, asked):
    np.testing.assert_allclose(st.jit(function)(A), wanted, rtol=1e-4, atol=1e-4)
    split = st.jit(function, in_shardings=NamedSharding(MESH, PartitionSpec("x")))
    np.testing.assert_allclose(split(A), wanted, rtol=1e-4, atol=1e-4)
    one_by_one = st.jit(lambda a: lax.scan(lambda c, x: (c, function(x)), 0, a)[1])
    np.testing.assert_allclose(one_by_one(A), wanted, rtol=1e-4, atol=1e-4)
    assert set(asked) == {call}


def test_the_same_equation_with_all_results_read_gives_them(asked):
    st.jit(jnp.linalg.eigvalsh)(A)
    values, vectors = st.jit(lambda a: tuple(jnp.linalg.eigh(a)))(A)
    np.testing.assert_allclose(vectors * values[:, None] @ vectors.mT, A, atol=1e-4)
    np.testing.assert_allclose(st.jit(jnp.linalg.eigvalsh)(A), values, rtol=1e-4, atol=1e-4)
    assert [name for name, *_ in asked] == ["eigvalsh", "eigh", "eigvalsh"]


def test_what_is_sorted_along_is_not_computed_for_its_order_alone(monkeypatch):
    seen = []

    def taken(x, order, axis):
        seen.append(x.dtype)
        return np.take_along_axis(x, order, axis)
    monkeypatch.setattr("shardtrace.ir.ops.reductions.sorting.taken", taken)
    x, y = A[0], A[1].astype(np.int8)
    assert np.array_equal(st.jit(jnp.argsort)(x), np.argsort(x))
    keys, others = st.jit(lambda x, y: tuple(lax.sort((x, y, x + y), num_keys=2)[:2]))(x, y)
    assert np.array_equal(keys, np.sort(x))
    assert np.array_equal(others, np.take_along_axis(y, np.argsort(x), -1))
    assert seen == [np.int32, np.float32, np.int8]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int32, np.uint8, bool])
@pytest.mark.parametrize("k", [0, 1, 3, 40])
def test_the_largest_without_their_positions(dtype, k, monkeypatch):
    x = np.random.default_rng(1).integers(-5, 5, (6, 40)).astype(dtype)
    if x.dtype.kind == "f":
        x[0, :4], x[1, :3] = (np.nan, -np.nan, np.inf, -np.inf), (0, -0.0, 0)
    both = st.jit(lambda x: tuple(lax.top_k(x, k)))(x)[0]
    monkeypatch.setattr("shardtrace.ir.ops.reductions.sorting.largest", None)
    found = st.jit(lambda x: lax.top_k(x, k)[0])(x)
    assert found.dtype == both.dtype
    assert np.asarray(found).tobytes() == np.asarray(both).tobytes()
    split = st.jit(lambda x: lax.top_k(x, k, axis=0)[0] if k <= 6 else x,
                   in_shardings=NamedSharding(MESH, PartitionSpec("x", "y")))(x)
    assert split.shape == ((k, 40) if k <= 6 else x.shape)


def test_values_of_matrices_that_are_not_finite_are_nan():
    bad = A.copy()
    bad[3, 0, 0] = np.inf
    found = np.asarray(st.jit(jnp.linalg.eigvalsh)(bad))
    assert np.isnan(found).all(1).tolist() == [i == 3 for i in range(8)]
    good = np.arange(8) != 3
    np.testing.assert_allclose(found[good], VALUES[good], rtol=1e-4, atol=1e-4)


def test_on_devices_whose_matrices_differ():
    def body(a):
        return lax.psum(jnp.linalg.eigvalsh(a * (1 + lax.axis_index("x"))).sum(), "x")
    spec = PartitionSpec()
    found = st.jit(st.shard_map(body, mesh=MESH, in_specs=spec, out_specs=spec))(A)
    np.testing.assert_allclose(found, 3 * VALUES.sum(), rtol=1e-3, atol=1e-3)
