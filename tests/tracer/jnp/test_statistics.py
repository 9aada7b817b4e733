"""Covariances and integrals of few, of no, and of oddly weighted observations, as in JAX."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace.numpy as jnp

NAN = np.nan
X = np.array([[1, 4, 2, 0], [3, 1, 5, 2]], np.float32)


@pytest.mark.parametrize(("shape", "rowvar", "want"), [
    ((0,), True, NAN), ((2, 0), True, np.full((2, 2), NAN)), ((0, 3), True, np.zeros((0, 0))),
    ((0,), False, NAN), ((1, 3), True, 0), ((1, 3), False, np.full((3, 3), NAN)),
    ((3, 1), False, 0)])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_covariances_of_few_observations(shape, rowvar, want):
    np.testing.assert_array_equal(jnp.cov(np.zeros(shape, np.float32), rowvar=rowvar), want)


def test_weights_count_without_their_signs():
    whole, parts = np.array([1, 2, 3, 1]), np.array([1, 2, 0.5, 1], np.float32)
    signs = np.array([1, -1, 1, -1])
    want = np.cov(X, fweights=whole, aweights=parts)
    np.testing.assert_allclose(jnp.cov(X, fweights=whole * signs, aweights=parts * signs.astype(
        np.float32)), want, 1e-5)


def test_integrals_of_nothing_are_zero():
    for x in (np.zeros((3, 0), np.float32), np.zeros(0, np.float32)):
        np.testing.assert_array_equal(jnp.trapezoid(x, x), np.zeros(x.shape[:-1]))


@pytest.mark.parametrize("length", [2, 3])
def test_padding_with_medians_of_what_has_nan_is_nan(length):
    x = np.array([[1, np.nan, 2, 5], [3, 4, 0, 1], [np.nan, 1, 1, 1], [2, 2, 3, np.inf]], "f4")
    for array in (x, np.arange(12).reshape(3, 4)):
        widths, options = ((1, 2), (3, 1)), {"mode": "median", "stat_length": length}
        np.testing.assert_array_equal(jnp.pad(array.astype("f4"), widths, **options),
                                      np.pad(array.astype("f4"), widths, **options))
