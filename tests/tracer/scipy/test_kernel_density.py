"""Densities of samples against scipy's."""
from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import shardtrace as st
from shardtrace.scipy.stats import gaussian_kde

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("bandwidth", [None, "silverman", 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 3])
def test_densities_and_integrals(d: int, weighted: bool, bandwidth) -> None:
    data, points = (RNG.standard_normal((d, n)).astype(np.float32) for n in (20, 7))
    weights = RNG.random(20).astype(np.float32) if weighted else None
    ours, scipys = gaussian_kde(data, bandwidth, weights), scipy.stats.gaussian_kde(
        data, bandwidth, weights)
    mean, cov = np.ones(d, np.float32), 2 * np.eye(d, dtype=np.float32)
    other = gaussian_kde(data[:, :9]), scipy.stats.gaussian_kde(data[:, :9])
    pairs = [(ours(points), scipys(points)), (ours.logpdf(points), scipys.logpdf(points)),
             (ours.covariance, scipys.covariance), (ours.inv_cov, scipys.inv_cov),
             (ours.neff, scipys.neff), (ours.integrate_gaussian(mean, cov),
                                        scipys.integrate_gaussian(mean, cov)),
             (ours.integrate_kde(other[0]), scipys.integrate_kde(other[1]))]
    if d == 1:
        pairs.append((ours.integrate_box_1d(-1, 2.0), scipys.integrate_box_1d(-1, 2)))
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_it_is_a_pytree_and_draws_samples() -> None:
    density = gaussian_kde(RNG.standard_normal((2, 30)).astype(np.float32))
    point = np.zeros(2, np.float32)
    np.testing.assert_allclose(st.jit(lambda k, x: k.pdf(x))(density, point), density(point),
                               rtol=1e-6)
    drawn = density.resample(st.random.key(0), (2000,))
    assert drawn.shape == (2, 2000)
    np.testing.assert_allclose(np.cov(drawn), np.cov(density.dataset) + density.covariance,
                               atol=0.25)


@pytest.mark.parametrize(("arguments", "error", "text"), [
    (([1j, 2],), NotImplementedError, "complex"), (([1.0],), ValueError, "multiple elements"),
    (([1.0, 2.0], "wide"), ValueError, "bw_method"),
    (([1.0, 2.0], None, [1.0]), ValueError, "length n")])
def test_what_is_refused(arguments, error, text) -> None:
    with pytest.raises(error, match=text):
        gaussian_kde(*map(lambda x: np.array(x) if isinstance(x, list) else x, arguments))
