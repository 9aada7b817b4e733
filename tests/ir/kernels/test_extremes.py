"""Extremes of an array and a number: the same as numpy's, also of NaN and of zeros of two signs."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.ir.kernels.elementwise.extremes import BY_CLIP, FEWEST

from ...rows import rows


@rows("ufunc", BY_CLIP)
@rows("number", [0.0, -0.0, 1.5, np.nan, np.inf])
@rows("shape", [(FEWEST,), (FEWEST // 64, 64), (FEWEST, 2), (3, 5), (4, 3, 2048),
                (FEWEST + 1,)])
def test_of_a_number(ufunc, number, shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x.reshape(-1)[:4] = np.nan, np.inf, -np.inf, 2
    for given in (np.float32(number), np.asarray(number, np.float32),
                  np.full((1,) * x.ndim, number, np.float32)):
        for operands in ((x, given), (given, x)):
            assert np.array_equal(BY_CLIP[ufunc](*operands), ufunc(*operands), equal_nan=True)
        out = x.copy()
        assert BY_CLIP[ufunc](out, given, out) is out
        assert np.array_equal(out, ufunc(x, given), equal_nan=True)


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64, np.float64])
def test_clipping_keeps_the_dtype(dtype):
    x = np.arange(FEWEST).astype(dtype)
    for ufunc, by_clip in BY_CLIP.items():
        found = by_clip(x, np.asarray(7, dtype))
        assert found.dtype == x.dtype
        assert np.array_equal(found, ufunc(x, dtype(7)))


def test_of_numbers_of_python():
    x = np.arange(FEWEST, dtype=np.float32)
    for ufunc, by_clip in BY_CLIP.items():
        assert np.array_equal(by_clip(x, 2), ufunc(x, np.float32(2)))
