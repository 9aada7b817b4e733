"""Cosine transforms against scipy's, and their slopes against differences of matrices."""
from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

import shardtrace as st
from shardtrace.scipy import fft

X = np.random.default_rng(0).standard_normal((3, 5, 6)).astype(np.float32)


@pytest.mark.parametrize("norm", [None, "ortho"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["dct", "idct"])
def test_along_a_dimension(name: str, axis: int, norm: str | None) -> None:
    for n in (None, 4, 9):
        found = getattr(fft, name)(X, n=n, axis=axis, norm=norm)
        assert found.dtype == np.float32
        np.testing.assert_allclose(
            found, getattr(scipy.fft, name)(X, n=n, axis=axis, norm=norm), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("arguments", [{}, {"axes": (0, 2)}, {"s": (4, 8), "axes": (1, 2)},
                                       {"s": (4,)}, {"norm": "ortho"}])
@pytest.mark.parametrize("name", ["dctn", "idctn"])
def test_transforms_along_several_dimensions_equal_those_of_scipy(
        name: str, arguments: dict) -> None:
    np.testing.assert_allclose(getattr(fft, name)(X, **arguments),
                               getattr(scipy.fft, name)(X, **arguments), rtol=1e-4, atol=1e-5)


def test_slopes_are_the_transposed_transform() -> None:
    matrix = np.asarray(st.jacrev(fft.dct)(X[0, 0]))
    np.testing.assert_allclose(matrix, scipy.fft.dct(np.eye(6), axis=0), rtol=1e-4, atol=1e-5)


def test_other_types_and_norms_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="Only DCT type 2 is implemented"):
        fft.dct(X, type=1)
    with pytest.raises(ValueError, match="norm='forward' is not implemented"):
        fft.idct(X, norm="forward")
    with pytest.raises(ValueError, match="same length"):
        fft.dctn(X, s=(2,), axes=(0, 1))
