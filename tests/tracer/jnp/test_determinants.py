"""Determinants have derivatives where the matrix is singular, as in JAX."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st

from ...real_jax import real_jax

RNG = np.random.default_rng(0)
REGULAR = RNG.normal(size=(4, 4)).astype(np.float32)
ONE_LESS = REGULAR.copy()
ONE_LESS[:, 3] = 0
RANK_ONE = np.ones((4, 1), np.float32) * REGULAR[:1]
NONE, EYE = np.zeros((4, 4), np.float32), np.eye(4, dtype=np.float32)
CASES = {
    "regular": REGULAR, "rank n - 1": ONE_LESS, "rank 1": RANK_ONE, "zero": NONE,
    "several": np.stack([NONE, REGULAR, RANK_ONE, EYE]), "one number": np.zeros((1, 1), np.float32),
    "complex": (REGULAR + 1j * REGULAR.T).astype(np.complex64),
    "larger": RNG.normal(size=(2, 7, 7)).astype(np.float32),
}


def moved(L: Any, a: np.ndarray) -> list[np.ndarray]:
    det = L.numpy.linalg.det
    found = L.jit(lambda a: (L.jvp(det, (a,), (a + 1,)),
                             L.grad(lambda a: L.numpy.sum(L.numpy.real(det(a))))(a)))(a)
    return list(map(np.asarray, L.tree.leaves(found)))


@pytest.mark.parametrize("name", CASES)
def test_as_in_jax(name: str) -> None:
    for ours, theirs in zip(moved(st, CASES[name]), moved(real_jax(), CASES[name]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


def test_twice_and_mapped() -> None:
    jax = real_jax()
    for a in (REGULAR, EYE):
        np.testing.assert_allclose(st.hessian(st.numpy.linalg.det)(a),
                                   jax.jit(jax.hessian(jax.numpy.linalg.det))(a), atol=2e-5)
    found = st.vmap(st.grad(st.numpy.linalg.det))(CASES["several"])
    wanted = jax.jit(jax.vmap(jax.grad(jax.numpy.linalg.det)))(CASES["several"])
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_the_slope_of_a_singular_matrix_is_that_of_numbers() -> None:
    slope = np.asarray(st.grad(st.numpy.linalg.det)(ONE_LESS))
    wide = ONE_LESS.astype(float)
    for i, j in np.ndindex(4, 4):
        step = np.zeros((4, 4))
        step[i, j] = 1e-3
        np.testing.assert_allclose(
            slope[i, j], (np.linalg.det(wide + step) - np.linalg.det(wide - step)) / 2e-3,
            atol=1e-5)


def test_the_determinant_of_an_empty_matrix_is_1() -> None:
    value, slope = st.value_and_grad(st.numpy.linalg.det)(np.zeros((0, 0), np.float32))
    assert value == 1 and slope.shape == (0, 0)
