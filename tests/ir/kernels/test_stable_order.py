"""Positions in a stable order: the same as numpy finds by comparing."""
from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.kernels import sorting as module
from shardtrace.ir.kernels.sorting import largest, stable_order, taken, total_order_key

from ...rows import rows

FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
          ml_dtypes.float8_e5m2]
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64,
            np.uint64]


def mixed(dtype, shape):
    """Values with many equals; of floats also zeros of both signs, NaNs of both, infinities."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) * 3).astype(dtype)
    if dtype in FLOATS:
        for special in (0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf):
            if np.isinf(special) and dtype is ml_dtypes.float8_e4m3fn:
                continue
            x[rng.random(shape) < 0.05] = special
    else:
        info = None if dtype is np.bool_ else np.iinfo(dtype)
        if info is not None:
            x[rng.random(shape) < 0.05], x[rng.random(shape) < 0.05] = info.min, info.max
    return x


@rows("shape,axis", [((7,), 0), ((5000,), 0), ((40, 100), 1), ((100, 40), 0),
                     ((20, 30, 10), 1), ((2, 0), 1), ((2, 2500), 1),
                     ((2500, 2), 0)])
@rows("dtype", FLOATS + INTEGERS)
def test_equals_stay_in_order_and_nans_come_last(dtype, shape, axis):
    x = mixed(dtype, shape)
    comparable = x.astype(np.float64) if dtype in FLOATS else x
    order = stable_order(x, axis)
    assert order.dtype == np.intp
    np.testing.assert_array_equal(order, np.argsort(comparable, axis=axis, kind="stable"))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("small", [False, True])
def test_elements_are_taken_as_numpy_takes_them(axis, small, monkeypatch):
    monkeypatch.setattr(module, "PACKED", 1 << 20 if small else 0)
    x = mixed(np.float32, (30, 50)).T
    order = stable_order(x, axis)
    np.testing.assert_array_equal(taken(x, order, axis), np.take_along_axis(x, order, axis))


def test_what_is_sorted_by_others_lies_as_its_keys_do():
    keys, rest = mixed(np.float32, (64, 200)), np.arange(64 * 200, dtype=np.int32).reshape(64, 200)
    found, order = st.jit(lambda k, r: st.lax.sort((k, r), dimension=1))(keys, rest)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(np.sort(keys)))
    np.testing.assert_array_equal(order, np.take_along_axis(
        rest, np.argsort(keys, axis=1, kind="stable"), 1))
    np.testing.assert_array_equal(
        jnp.argsort(keys, axis=0), np.argsort(keys, axis=0, kind="stable"))


@rows("shape", [(7, 5), (4, 70), (900, 90), (3000, 30), (2, 60, 700), (0, 4)])
@rows("kind", [np.float32, np.int32, np.uint8, np.float64, np.uint32])
def test_the_largest_are_those_of_a_stable_sort(shape, kind):
    rng = np.random.default_rng(0)
    for distinct, axis in itertools.product((True, False), (0, len(shape) - 1)):
        x = rng.normal(size=shape) * 1000 if distinct else rng.integers(0, 9, shape)
        x = np.abs(x).astype(kind) if np.dtype(kind).kind == "u" else x.astype(kind)
        n = shape[axis]
        if x.dtype.kind == "f" and x.size:
            x.reshape(-1)[:2] = -0.0, 0.0
        for k in sorted({1, 2, n // 2, n} - {0}) if n else ():
            values, places = largest(x, k, axis)
            keys = total_order_key(np.flip(x, axis))
            ascending = np.argsort(keys, axis=axis, kind="stable")
            want = n - 1 - np.flip(ascending, axis).take(range(k), axis)
            np.testing.assert_array_equal(places, want)
            np.testing.assert_array_equal(values, np.take_along_axis(x, want, axis))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_all_bits_of_long_keys_count(dtype):
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max, 10_000, dtype, endpoint=True)
    near = x & dtype(7 << 20)               # equal but for three bits in the middle
    for keys in (x, near):
        np.testing.assert_array_equal(stable_order(keys, 0), np.argsort(keys, kind="stable"))
