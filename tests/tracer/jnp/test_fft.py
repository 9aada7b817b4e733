"""Fourier transforms of dimensions of size 0 and 1."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace.numpy as jnp


@pytest.mark.parametrize("name, shape, axis, want", [
    ("fft", (0, 6), 0, ((0, 6), "complex64")), ("ifft", (6, 0), 1, ((6, 0), "complex64")),
    ("irfft", (1, 6), 0, ((0, 6), "float32")), ("hfft", (0, 6), 0, ((0, 6), "float32")),
    ("irfft", (6, 1), 1, ((6, 0), "float32")), ("ihfft", (1, 6), 0, ((1, 6), "complex64"))])
def test_transforms_of_nothing_keep_their_dimensions(name, shape, axis, want):
    x = np.ones(shape, np.float32)
    found = getattr(jnp.fft, name)(x, axis=axis)
    assert (found.shape, found.dtype) == want


def test_real_transforms_of_nothing_are_refused():
    with pytest.raises(ValueError, match="number of FFT data points"):
        jnp.fft.rfft(np.ones((0, 6), np.float32), axis=0)
