"""Functions of factors beside scipy: batches, permuted columns, and what is no Schur form."""
from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.linalg

import shardtrace as st
from shardtrace.scipy import linalg

RNG = np.random.default_rng(3)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
def test_a_complex_schur_form_is_made_as_scipy_makes_it_of_any_matrix(kind):
    t, z = (floats(5, 5).astype(kind) for _ in range(2))
    if kind is np.complex64:
        t, z = t + 1j * floats(5, 5), z + 1j * floats(5, 5)
    for ours, theirs in zip(st.jit(linalg.rsf2csf)(t, z), scipy.linalg.rsf2csf(t, z), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_complex_schur_forms_of_several_matrices():
    t, z = floats(3, 1, 4, 4), floats(2, 4, 4)
    tc, zc = linalg.rsf2csf(t, z)
    assert tc.shape == zc.shape == (3, 2, 4, 4)
    one = linalg.rsf2csf(t[2, 0], z[1])
    np.testing.assert_allclose(tc[2, 1], one[0], atol=1e-5)
    np.testing.assert_allclose(zc[2, 1], one[1], atol=1e-5)


@pytest.mark.parametrize(("mode", "shape"), [("right", (2, 5)), ("left", (5, 2))])
def test_products_with_the_factor_of_permuted_columns(mode, shape):
    a, c = floats(5, 5), floats(*shape)
    times = functools.partial(linalg.qr_multiply, mode=mode, pivoting=True)
    product, r, order = st.jit(times)(a, c)
    q, wanted, permutation = scipy.linalg.qr(a, pivoting=True)
    signs = np.sign(np.diag(r)) * np.sign(np.diag(wanted))
    assert order.tolist() == permutation.tolist()
    np.testing.assert_allclose(r, wanted * signs[:, None], atol=1e-4)
    q = q * signs
    np.testing.assert_allclose(product, q @ c if mode == "left" else c @ q, atol=1e-4)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("complex_", [False, True])
def test_polar_and_sylvester_take_batches(side, complex_):
    draw = np.random.default_rng(0).normal
    a = draw(size=(2, 1, 4, 4)).astype(np.float32) * (1 + 1j if complex_ else 1)
    u, p = linalg.polar(a, side, method="svd")
    np.testing.assert_allclose(u @ p if side == "right" else p @ u, a, atol=1e-4)
    b, c = draw(size=(3, 2, 2)).astype(np.float32), draw(size=(4, 2)).astype(np.float32)
    for method in ("schur", "eigen"):
        x = linalg.solve_sylvester(a, b, c, method=method)
        assert x.shape == (2, 3, 4, 2)
        np.testing.assert_allclose(a @ x + x @ b, np.broadcast_to(c, x.shape), atol=1e-2)
        np.testing.assert_allclose(x[1, 2], linalg.solve_sylvester(
            a[1, 0], b[2], c, method=method), rtol=1e-3, atol=1e-4)
