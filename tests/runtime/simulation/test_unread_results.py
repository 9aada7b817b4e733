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
