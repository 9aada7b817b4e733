"""Spherical harmonics beside scipy's."""
from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import shardtrace as st
from shardtrace.scipy import special
from tests.executors import agree

N, M = np.array([0, 1, 2, 3, 3, 5, 9, 9]), np.array([0, -1, 2, -3, 1, 0, -4, 9])
THETA = np.linspace(0.1, 3, 8).astype(np.float32)
PHI = np.linspace(0, 6, 8).astype(np.float32)


def test_degrees_and_orders_of_both_signs():
    wanted = scipy.special.sph_harm_y(N, M, THETA, PHI)
    np.testing.assert_allclose(special.sph_harm_y(N, M, THETA, PHI), wanted, atol=2e-6)
    found = agree(lambda n, m, t, p: special.sph_harm_y(n, m, t, p, n_max=9), N, M, THETA, PHI)
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    np.testing.assert_allclose(special.sph_harm_y(N[-2:], M[-2:] * 0, 0.5, 0.5, n_max=4),
                               scipy.special.sph_harm_y([4, 4], [0, 0], 0.5, 0.5), rtol=1e-5)
    with pytest.raises(NotImplementedError, match="diff_n"):
        special.sph_harm_y(N, M, THETA, PHI, diff_n=1)


def test_orders_beyond_the_degree_have_none():
    n, m = np.array([0, 1, 2, 2, 3]), np.array([1, 2, -3, 2, -4])
    wanted = scipy.special.sph_harm_y(n, m, THETA[:5], PHI[:5])
    assert np.count_nonzero(wanted) == 1
    np.testing.assert_allclose(special.sph_harm_y(n, m, THETA[:5], PHI[:5]), wanted, atol=2e-6)


def test_slopes_of_spherical_harmonics_equal_differences():
    slope = st.grad(lambda t: special.sph_harm_y(N[2:3], M[1:2], t, 0.3).real[0])
    step = 1e-3
    wanted = np.diff(scipy.special.sph_harm_y(2, -1, np.array([0.7 - step, 0.7 + step]), 0.3).real)
    np.testing.assert_allclose(slope(0.7), wanted[0] / (2 * step), rtol=1e-4)


def test_colatitudes_below_zero_are_scipys():
    np.testing.assert_allclose(special.sph_harm_y(N, M, -THETA, PHI),
                               scipy.special.sph_harm_y(N, M, -THETA, PHI), atol=2e-6)
