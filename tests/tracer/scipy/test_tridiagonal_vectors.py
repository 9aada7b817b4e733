"""Eigenvectors of tridiagonal matrices, and least squares of a matrix of zeros."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.scipy import linalg


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("select, found", [
    (("a", None), slice(None)), (("i", (1, 2)), slice(1, 3))])
def test_eigenvectors_satisfy_the_equation(dtype, select, found):
    d = np.array([2.0, -1.0, 0.5, 3.0], dtype)
    e = (np.array([1.0, 0.5, -2.0]) * (1 + (1j if dtype == np.complex64 else 0))).astype(dtype)
    a = np.diag(d) + np.diag(e, 1) + np.diag(e.conj(), -1)
    w, v = st.jit(lambda d, e: linalg.eigh_tridiagonal(d, e, select=select[0],
                                                       select_range=select[1]))(d, e)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a)[found], rtol=1e-5)
    np.testing.assert_allclose(a @ v, v * w, atol=1e-5)


def test_least_squares_of_zeros_are_zeros():
    x, _, rank, _ = jnp.linalg.lstsq(jnp.zeros((3, 2)), jnp.ones(3))
    np.testing.assert_array_equal(x, 0)
    assert rank == 0
