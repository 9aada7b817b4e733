"""bfloat16 and float16 in fused calls: rounded as where each call is made by itself."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

from .test_tiled_fusion import _tiny, assert_same, both, data, groups


@pytest.fixture
def tiny(monkeypatch):
    yield from _tiny(monkeypatch)


def test_numbers_beside_narrow_floats_do_not_end_a_group(tiny):
    def f(x, y):
        return jnp.tanh(jnp.maximum(x * y + 1, 0) * 0.5 - y)
    args = [data(10, 8, dtype=ml_dtypes.bfloat16, seed=seed) for seed in (1, 2)]
    assert groups(f, *args) == [["mul", "add", "max", "mul", "sub", "tanh"]]
    one, other = both(f, *args)
    np.testing.assert_array_equal(one[0].view(np.uint16), other[0].view(np.uint16))


@pytest.mark.parametrize("f", [
    lambda x, y: jnp.tanh(jnp.maximum(x * y + 1, 0) * 0.5 - y),
    lambda x, y: (x * y - x, jnp.where(x < y, -x, abs(y)) + x, x / (y - y)),    # several results
    lambda x, y: (x + y).reshape(5, -1) * x.dtype.type(3) + x.reshape(5, -1),
    lambda x, y: ((x + y).astype(jnp.float32) * 1.001, (x * y).astype(jnp.int32) + 1),
    lambda x, y: lax.bitcast_convert_type(x * y, jnp.uint16) + jnp.uint16(1),
    lambda x, y: (x.astype(jnp.int32).astype(x.dtype) * y * x, (x * y).max(-1)),
    lambda x, y: (x * 300 * y * 300 - x, x * 1e-4 * y * 1e-4 * 1e-2 - x * 1e-7),
    lambda x, y: (jnp.floor(x * 9) * y, jnp.minimum(x * y, y) + x, -jnp.maximum(x, y) * x),
    lambda x, y: ((x.astype(jnp.float32) * 1.001).astype(x.dtype) * y, jnp.float32(3) + (x * y)),
    lambda x, y: (x * 1e38 * y * 10 * y, x * 1e-38 * y * 1e-2 * y * 1e3)])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_as_each_result_is(tiny, f, dtype):
    with np.errstate(all="ignore"):
        x, y = data(40, 50, dtype=dtype), data(40, 50, dtype=dtype, seed=1)
        y[::7] = x[::7]
        x[1, :4], y[2, :4] = [np.nan, np.inf, -np.inf, -0.0], [np.inf, np.nan, -0.0, 0.0]
        assert_same(f, x, y)


def test_nan_stays_nan_however_it_is_written(tiny):
    x = np.tile(np.uint32([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00001]), 500)
    y = np.tile(np.uint16([0x7FFF, 0x7F81, 0xFFFF, 0xFF81]), 500).view(ml_dtypes.bfloat16)

    def f(x, y):
        narrow = x.astype(y.dtype)
        return narrow * 2 + 1, jnp.maximum(y * narrow, y) * y, (y + 1) * 2
    assert all([np.isnan(np.asarray(z)).all() for z in st.jit(f)(x.view(np.float32), y)])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_an_operand_is_read_before_a_result_is_written_over_it(tiny, dtype):
    """The conversion of x is one value of the group, made at its beginning; y in float32 ends
    there, and is summed by rows after that.
    """
    def f(x, y):
        shifted = x + (y * y.mean() + y.sum(-1, keepdims=True))
        return x * x.mean(), shifted
    assert_same(f, data(16, 12, dtype=dtype), data(16, 12, dtype=dtype, seed=1))
