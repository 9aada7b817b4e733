"""The distributions of shardtrace.scipy.stats against scipy's, and their derivatives."""
from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.scipy import stats

from ...rows import rows

X = np.array([-1.3, 0.0, 0.2, 0.8, 2.5], np.float32)
Q = np.array([1e-4, 0.2, 0.5, 0.7, 0.999], np.float32)
LOC, SCALE = np.float32(0.1), np.float32(1.4)
CONTINUOUS = {"norm": (), "laplace": (), "logistic": (), "cauchy": (), "expon": (), "uniform": (),
              "gamma": (2.3,), "chi2": (3.0,), "beta": (1.7, 2.4), "t": (4.0,)}
ALL = ("logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")


OFFERED = [(name, method) for name in CONTINUOUS for method in ALL
           if hasattr(getattr(stats, name), method)]


@rows("name, method", OFFERED)
def test_continuous_distributions_are_those_of_scipy(name, method):
    shape = CONTINUOUS[name]
    x = Q if method in ("ppf", "isf") else X
    with np.errstate(all="ignore"):
        expected = getattr(getattr(scipy.stats, name), method)(
            x.astype(float), *shape, float(LOC), float(SCALE))
    got = getattr(getattr(stats, name), method)(x, *shape, LOC, SCALE)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    if method == "logpdf":
        np.testing.assert_allclose(
            getattr(stats, name).logpdf(jnp.float32(0.4), *shape),
            getattr(scipy.stats, name).logpdf(0.4, *shape), rtol=1e-5)


@pytest.mark.parametrize(("name", "method", "arguments"), [
    ("bernoulli", "logpmf", (np.array([0, 1, 2, -1]), 0.3)),
    ("bernoulli", "pmf", (np.array([0, 1, 2]), 0.3)),
    ("bernoulli", "cdf", (np.array([-1, 0, 1]), 0.3)),
    ("bernoulli", "ppf", (np.array([0.2, 0.8]), 0.3)),
    ("binom", "logpmf", (np.array([0, 2, 5, 6]), 5, 0.3)),
    ("binom", "pmf", (np.array([0, 2, 5, 6]), 5, 0.3)),
    ("poisson", "logpmf", (np.array([-1, 0, 3, 7]), 2.5)),
    ("poisson", "pmf", (np.array([-1, 0, 3, 7]), 2.5)),
    ("poisson", "cdf", (np.array([-1, 0, 3, 7]), 2.5)),
])
def test_discrete_distributions_are_those_of_scipy(name, method, arguments):
    expected = getattr(getattr(scipy.stats, name), method)(*arguments)
    np.testing.assert_allclose(getattr(getattr(stats, name), method)(*arguments), expected,
                               rtol=1e-5, atol=1e-6)


def test_vectors_have_the_densities_of_scipy():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 3)).astype(np.float32)
    cov, mean = (a @ a.T + np.eye(3, dtype=np.float32)), a[0]
    x = rng.standard_normal((4, 3)).astype(np.float32)
    reference = scipy.stats.multivariate_normal(mean, cov)
    np.testing.assert_allclose(stats.multivariate_normal.logpdf(x, mean, cov),
                               reference.logpdf(x), rtol=1e-5)
    np.testing.assert_allclose(stats.multivariate_normal.pdf(x[0], mean, cov),
                               reference.pdf(x[0]), rtol=1e-5)
    np.testing.assert_allclose(
        stats.multivariate_normal.logpdf(x, mean, np.float32(2.0)),
        scipy.stats.multivariate_normal(mean, 2.0).logpdf(x), rtol=1e-5)
    alpha, point = np.array([1.5, 2.0, 3.0], np.float32), np.array([0.2, 0.3, 0.5], np.float32)
    expected = scipy.stats.dirichlet.logpdf(point.astype(float) / point.astype(float).sum(), alpha)
    np.testing.assert_allclose(stats.dirichlet.logpdf(point, alpha), expected, rtol=1e-5)
    np.testing.assert_allclose(stats.dirichlet.logpdf(point[:2], alpha), expected, rtol=1e-5)
    assert stats.dirichlet.logpdf(point * 2, alpha) == -np.inf


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_derivative_of_cdf_is_the_density(name):
    shape, x = CONTINUOUS[name], jnp.float32(0.37)
    distribution = getattr(stats, name)
    if not hasattr(distribution, "cdf"):
        pytest.skip("has no cdf")
    slope = st.grad(lambda x: distribution.cdf(x, *shape))(x)
    np.testing.assert_allclose(slope, distribution.pdf(x, *shape), rtol=1e-4)


def test_numbers_of_python_are_divided_as_arrays_are() -> None:
    assert jnp.isnan(stats.norm.pdf(1.0, 0.0, 0.0)) and jnp.isnan(stats.t.logpdf(1.0, 0, 1))
    assert jnp.isinf(st.random.weibull_min(st.random.key(0), 1.0, 0.0, (2,))).all()


def test_the_density_of_a_uniform_distribution_of_no_width():
    x = np.array([0.0, 1.0, 2.0], np.float32)
    np.testing.assert_array_equal(st.scipy.stats.uniform.pdf(x, 1.0, 0.0), [0, np.inf, 0])
    np.testing.assert_array_equal(st.scipy.stats.uniform.pdf(x, 1.0, np.inf), [0, 0, 0])
