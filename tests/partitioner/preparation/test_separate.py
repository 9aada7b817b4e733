"""Transforms over several dimensions are done one after another; no dimension is gathered."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp

from ..agreement import agree

RNG = np.random.default_rng(0)


def signal(*shape, real=False):
    x = RNG.normal(size=shape).astype(np.float32)
    return x if real else (x + 1j * RNG.normal(size=shape)).astype(np.complex64)


def test_rows_and_columns_take_two_exchanges():
    x = signal(64, 64)
    assert agree(jnp.fft.fft2, [x], [("x",)], ("x",), rtol=1e-3) == 2 * 7 * x.nbytes // 64


def test_a_result_that_may_be_split_otherwise_takes_one():
    x = signal(64, 64)
    assert agree(jnp.fft.fft2, [x], [("x",)], (None, "x"), rtol=1e-3) == 7 * x.nbytes // 64


@pytest.mark.parametrize("f, x, spec, sizes", [
    (jnp.fft.ifft2, signal(16, 24), (None, "x"), (8,)),
    (jnp.fft.fftn, signal(8, 16, 8), ("x", "y"), (2, 4)),
    (jnp.fft.ifftn, signal(8, 16, 8), (None, ("y", "x")), (2, 4)),
    (jnp.fft.rfft2, signal(16, 24, real=True), ("x",), (8,)),
    (jnp.fft.rfftn, signal(8, 8, 14, real=True), ("x", "y"), (2, 4)),
    (jnp.fft.irfft2, signal(16, 9), ("x",), (8,)),
    (jnp.fft.irfftn, signal(8, 8, 5), ("x", "y"), (2, 4)),
    (lambda x: jnp.fft.irfftn(x, s=(8, 8, 7)), signal(8, 8, 5), ("x", "y"), (2, 4)),
    (lambda x: jnp.fft.fft2(x, axes=(0, 1)), signal(8, 16, 3), ("x",), (8,)),
])
def test_transforms_of_every_kind(f, x, spec, sizes):
    agree(f, [x], [spec], None, sizes, rtol=1e-3)


def test_derivatives_pass_through():
    agree(lambda x: st.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.fft2(x)) ** 2))(x),
          [signal(16, 16, real=True)], [("x",)], ("x",), rtol=1e-2)
