"""Extremes of short rows are those that numpy finds."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace.runtime.calls.short_rows import by_columns, is_by_columns
from shardtrace.runtime.plans import blocks

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(40, 8), (4, 16, 3), (2, 3, 4, 5, 16)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_by_columns(shape, dtype):
    x = (RNG.normal(size=shape) * 100).astype(dtype)
    if dtype is np.float32:
        x.reshape(-1)[7] = np.nan
    rows = np.prod(shape[:-1])
    for function in (np.maximum, np.minimum):
        assert is_by_columns(function, (shape, x.dtype), (x.ndim - 1,)) == (rows >= 32)
        want = function.reduce(x, -1)
        for given in (x, np.asfortranarray(x), np.repeat(x, 2, 0)[::2]):
            np.testing.assert_array_equal(by_columns(function)(given), want)
        out = np.empty_like(want)
        by_columns(function)(x, out)
        np.testing.assert_array_equal(out, want)


def test_other_reductions_stay_as_they_are():
    f32 = np.dtype(np.float32)
    assert not is_by_columns(np.add, ((64, 8), f32), (1,))
    assert not is_by_columns(np.maximum, ((64, 8), f32), (0,))
    assert not is_by_columns(np.maximum, ((64, 8, 8), f32), (1, 2))
    assert not is_by_columns(np.maximum, ((64, 256), f32), (1,))


@pytest.mark.parametrize("blocked", [False, True])
def test_programs_with_short_rows(blocked, monkeypatch):
    if blocked:
        monkeypatch.setattr(blocks, "LARGE", 1)
        monkeypatch.setattr(blocks, "SINGLE", 1)
    x = RNG.normal(size=(6, 10, 12)).astype(np.float32)
    f = st.jit(lambda x: (x - x.max(-1, keepdims=True)).min(-1) + x.max(-1))
    want = (x - x.max(-1, keepdims=True)).min(-1) + x.max(-1)
    for _ in range(4):
        np.testing.assert_allclose(f(x), want, rtol=1e-6)
