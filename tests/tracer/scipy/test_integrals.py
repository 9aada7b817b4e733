"""Exponential integrals against scipy's, over all expansions and at their seams."""
from __future__ import annotations

import numpy as np
import scipy.special

import shardtrace as st
from shardtrace.scipy import special

X = np.concatenate([-np.logspace(-20, 2, 60), np.logspace(-20, 2, 60),
                    [-1, -1.0001, 0, 39.99, 40, 40.01, np.inf, -np.inf, np.nan]])


def test_exponential_integrals_equal_those_of_scipy() -> None:
    expected = scipy.special.expi(X)
    with st.enable_x64(True):
        np.testing.assert_allclose(special.expi(X), expected, rtol=1e-11)
        np.testing.assert_allclose(special.exp1(abs(X)), scipy.special.exp1(abs(X)), rtol=1e-11)
    narrow = X.astype(np.float32)
    with np.errstate(over="ignore"):
        expected = scipy.special.expi(narrow.astype(float)).astype(np.float32)
    np.testing.assert_allclose(special.expi(narrow), expected, rtol=1e-5, atol=1e-6)
    assert np.isnan(special.exp1(-1.0)) and special.expi(1).dtype == np.float32


def test_slopes_of_exponential_integrals_equal_the_formula() -> None:
    x = np.array([-30, -2, -0.5, 0.3, 2, 60], np.float32)
    np.testing.assert_allclose(st.vmap(st.grad(special.expi))(x), np.exp(x) / x, rtol=1e-5)
    np.testing.assert_allclose(st.vmap(st.grad(special.exp1))(abs(x)), -np.exp(-abs(x)) / abs(x),
                               rtol=1e-5)
