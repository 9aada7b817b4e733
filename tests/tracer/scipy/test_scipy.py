"""The functions of shardtrace.scipy against scipy, their derivatives, and split operands."""
from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.scipy import linalg, special, stats
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

POSITIVE = np.array([0.3, 0.9, 1.7, 4.2, 9.5], np.float32)
SIGNED = np.array([-2.6, -0.4, 0.0, 0.7, 3.1], np.float32)
UNIT = np.array([1e-6, 0.01, 0.3, 0.5, 0.98], np.float32)
FIVE = np.array([5.0, 2.0, 3.5, 1.0, 6.0], np.float32)

CASES = [
    *[(name, (POSITIVE,)) for name in (
        "gammaln", "loggamma", "gamma", "digamma", "entr", "i0", "i0e", "i1", "i1e", "factorial",
        "erf", "erfc")],
    *[(name, (SIGNED,)) for name in ("expit", "ndtr", "log_ndtr", "erf", "erfc", "i0", "i1")],
    *[(name, (UNIT,)) for name in ("logit", "ndtri", "erfinv")],
    *[(name, (POSITIVE, FIVE)) for name in (
        "betaln", "beta", "gammainc", "gammaincc", "xlogy", "xlog1py", "rel_entr", "kl_div",
        "poch", "boxcox", "boxcox1p")],
    ("gammasgn", (np.array([-3.5, -0.5, 0.5, -1.5], np.float32),)),
    ("zeta", (np.array([2.0, 3.0], np.float32), np.float32(1.0))),
    ("polygamma", (np.array([1, 2], np.int32), np.array([0.7, 2.2], np.float32))),
    ("betainc", (POSITIVE, FIVE, UNIT)),
    ("comb", (np.array([6.0, 3.0, 5.0], np.float32), np.array([2.0, 4.0, 0.0], np.float32))),
]


@rows("name, arguments", CASES)
def test_special_functions_are_those_of_scipy(name, arguments):
    if name == "gammasgn" and not hasattr(scipy.special, name):
        pytest.skip("scipy lacks it")
    expected = getattr(scipy.special, name)(*(np.asarray(a, np.float64) for a in arguments))
    got = getattr(special, name)(*arguments)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, expected, rtol=3e-5, atol=2e-6)


def test_multigammaln_is_scipys():
    np.testing.assert_allclose(special.multigammaln(FIVE, 2), scipy.special.multigammaln(FIVE, 2),
                               rtol=1e-5)


@pytest.mark.parametrize("x", [-30.0, -12.0, -3.0, 0.0, 2.0, 7.0])
def test_log_ndtr_and_its_derivative_are_exact_far_out(x):
    value, slope = st.value_and_grad(special.log_ndtr)(x)
    density = np.exp(-0.5 * x * x - 0.5 * np.log(2 * np.pi) - scipy.special.log_ndtr(x))
    np.testing.assert_allclose([value, slope], [scipy.special.log_ndtr(x), density], rtol=1e-4)


def test_edges_have_values_and_derivatives_without_nan():
    assert float(special.xlogy(0.0, 0.0)) == 0.0
    assert float(st.grad(special.xlogy, 1)(0.0, 2.0)) == 0.0
    assert float(st.grad(special.xlogy)(0.0, 2.0)) == pytest.approx(np.log(2.0))
    assert special.ndtri(jnp.array([0.0, 1.0])).tolist() == [-np.inf, np.inf]
    assert float(special.entr(-1.0)) == -np.inf
    assert float(st.grad(special.ndtri)(0.5)) == pytest.approx(np.sqrt(2 * np.pi), rel=1e-5)


# -- linear algebra --------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
A = (RNG.standard_normal((5, 5)) + 4 * np.eye(5)).astype(np.float32)
S = (A @ A.T).astype(np.float32)
B = RNG.standard_normal((5, 3)).astype(np.float32)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("b", [B, B[:, 0]])
def test_factored_systems_are_solved(lower, b):
    expected = np.linalg.solve(S, b)
    np.testing.assert_allclose(linalg.cho_solve(linalg.cho_factor(S, lower), b), expected,
                               rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(linalg.cholesky(S, lower), scipy.linalg.cholesky(S, lower),
                               rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(linalg.solve(S, b, assume_a="pos", lower=lower), expected,
                               rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("lower", [False, True])
def test_cholesky_reads_one_triangle(lower):
    triangle = np.tril if lower else np.triu
    np.testing.assert_array_equal(linalg.cholesky(triangle(S), lower), linalg.cholesky(S, lower))


@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("b", [B, B[:, 0]])
def test_triangular_and_lu_systems_are_solved_transposed_or_not(trans, b):
    system = A if trans == 0 else A.T
    np.testing.assert_allclose(linalg.lu_solve(linalg.lu_factor(A), b, trans),
                               np.linalg.solve(system, b), rtol=1e-3, atol=1e-4)
    for lower in (False, True):
        np.testing.assert_allclose(
            linalg.solve_triangular(A, b, trans=trans, lower=lower),
            scipy.linalg.solve_triangular(A, b, trans=trans, lower=lower), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(5, 5), (4, 6), (6, 4)])
def test_lu_multiplies_back(shape):
    a = RNG.standard_normal(shape).astype(np.float32)
    p, lower, upper = linalg.lu(a)
    np.testing.assert_allclose(p @ lower @ upper, a, atol=1e-5)
    np.testing.assert_allclose(linalg.lu(a, permute_l=True)[0], p @ lower, atol=1e-6)
    for got, expected in zip((p, lower, upper), scipy.linalg.lu(a), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize("scale", [0.0, 0.01, 0.3, 1.0, 4.0])
def test_expm_is_scipys_for_small_and_large_norms(scale):
    expected = scipy.linalg.expm(scale * A.astype(np.float64))
    np.testing.assert_allclose(linalg.expm(scale * A), expected, rtol=5e-4,
                               atol=1e-4 * np.abs(expected).max())
    upper = np.triu(scale * A)
    np.testing.assert_allclose(linalg.expm(upper, upper_triangular=True), scipy.linalg.expm(upper),
                               rtol=5e-4, atol=1e-4)


def test_expm_of_a_batch_and_its_derivative():
    batch = np.stack([0.1 * A, 2 * A])
    got = linalg.expm(batch)
    for one, a in zip(got, batch, strict=True):
        np.testing.assert_allclose(one, linalg.expm(a), rtol=1e-5)
    direction = np.asarray(B @ B.T, np.float32)
    _, slope = st.jvp(linalg.expm, (0.3 * A,), (direction,))
    expected = scipy.linalg.expm_frechet(0.3 * A.astype(float), direction.astype(float))[1]
    np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-3)
    for method in (None, "SPS", "blockEnlarge"):
        found = linalg.expm_frechet(0.3 * A, direction, method=method, compute_expm=False)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_matrices_made_of_parts():
    np.testing.assert_array_equal(linalg.block_diag(A, 2.0, B),
                                  scipy.linalg.block_diag(A, 2.0, B))
    np.testing.assert_array_equal(linalg.toeplitz([1.0, 2, 3], [1.0, 5, 6, 7]),
                                  scipy.linalg.toeplitz([1.0, 2, 3], [1.0, 5, 6, 7]))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_split_operands_give_the_same(kind):
    mesh = st.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)
    x = np.tile(POSITIVE[:4], (2, 1)).T.copy()
    split = st.device_put(x, NamedSharding(mesh, P("x", "y")))
    matrices = np.stack([S, 2 * S, 3 * S, 4 * S])
    batch = st.device_put(matrices, NamedSharding(mesh, P("x")))
    with st.set_mesh(mesh):
        for f in (special.gammaln, special.log_ndtr, special.ndtr, special.entr):
            got = st.jit(f)(split)
            np.testing.assert_allclose(got, f(x), rtol=1e-6)
        got = st.jit(st.vmap(lambda s: linalg.cho_solve(linalg.cho_factor(s), B)))(batch)
    np.testing.assert_allclose(got, [np.linalg.solve(s, B) for s in matrices], rtol=1e-3, atol=1e-4)


def test_a_fourier_matrix_is_complex():
    assert linalg.dft(4, dtype="complex64").dtype == np.complex64
    with pytest.raises(ValueError, match="must be a complex floating-point type; got float32"):
        linalg.dft(4, dtype="float32")


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
def test_ranks_are_floats_and_those_of_nan_are_nan(method):
    x = np.array([[3, 1, 1], [2, 2, 9]])
    ranks = stats.rankdata(x, method, axis=1)
    assert str(ranks.aval) == "float32[2,3]" and not ranks.weak_type
    np.testing.assert_array_equal(ranks, scipy.stats.rankdata(x, method, axis=1))
    y = x.astype(np.float32)
    y[0, 1] = np.nan
    assert np.isnan(stats.rankdata(y, method)).all()
    np.testing.assert_array_equal(np.isnan(stats.rankdata(y, method, axis=1)).all(1), [True, False])
    assert stats.rankdata(y[:0], method, axis=0).shape == (0, 3)
