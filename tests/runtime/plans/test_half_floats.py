"""bfloat16 and float16 in fused calls: rounded where a value is written, or as each result is."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

from .test_tiled_fusion import assert_same, data, groups


def test_numbers_beside_narrow_floats_do_not_end_a_group(tiny):
    def f(x, y):
        return jnp.tanh(jnp.maximum(x * y + 1, 0) * 0.5 - y)
    args = [data(10, 8, dtype=ml_dtypes.bfloat16, seed=seed) for seed in (1, 2)]
    assert groups(f, *args) == [["mul", "add", "max", "mul", "sub", "tanh"]]
    assert_same(f, *args)


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


# -- excess precision ------------------------------------------------------------------------------

DTYPES = pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])


def in_float32(f, *args):
    """What f gives of the same numbers in float32, rounded to their dtype."""
    return [np.asarray(r).astype(args[0].dtype) for r in st.tree.leaves(
        st.jit(f)(*[x.astype(np.float32) for x in args]))]


def each_rounded(f, *args):
    with st.config.override(shardtrace_allow_excess_precision=False):
        return [np.asarray(r) for r in st.tree.leaves(st.jit(f)(*args))]


def bits(arrays):
    return [np.asarray(x).view(f"u{x.dtype.itemsize}").tolist() for x in st.tree.leaves(arrays)]


@DTYPES
@pytest.mark.parametrize("f", [
    lambda x, y: jnp.tanh(jnp.maximum(x * y + 1, 0) * 0.5 - y) * y + jnp.exp(-x * x),
    lambda x, y: jnp.where(x * y > 1, x - y, x * y * 3) * y,
    lambda x, y: ((x * y).reshape(-1) * 3 + y.reshape(-1)).reshape(x.shape),
    lambda x, y: [x * y - x, (x + y) * (x - y)],
    lambda x, y: (x * y > 1).astype(x.dtype) * x * y * 3,
    lambda x, y: x * 250 * y * 250 * 2.0 ** -10])           # too large for float16 in between
def test_values_that_only_the_group_reads_are_rounded_once(tiny, f, dtype):
    x, y = data(40, 50, dtype=dtype), data(40, 50, dtype=dtype, seed=1)
    found = st.jit(f)(x, y)
    assert bits(found) == bits(in_float32(f, x, y)) != bits(each_rounded(f, x, y))


@DTYPES
def test_conversions_that_the_user_wrote_round(tiny, dtype):
    info = jnp.finfo(dtype)
    x, y = data(40, 50), data(40, 50, seed=1)

    def converted(x, y):
        return (x * y).astype(dtype).astype(np.float32) * y

    def reduced(x, y):
        return lax.reduce_precision(x * y, info.nexp, info.nmant) * y

    def narrowed(x, y):                     # of float32, before arithmetic in the dtype
        return (x * y).astype(dtype) * y.astype(dtype)
    for f in (converted, narrowed):
        assert bits(st.jit(f)(x, y)) == bits(each_rounded(f, x, y))
    x, y = x.astype(dtype), y.astype(dtype)
    assert bits(st.jit(reduced)(x, y)) == bits(each_rounded(reduced, x, y))


@DTYPES
def test_a_group_computes_with_the_results_that_others_see(tiny, dtype):
    def f(x, y):
        product = jnp.where(x > 0, x * y, y)
        return product, product.astype(np.float32) * 3
    product, tripled = st.jit(f)(data(40, 50, dtype=dtype), data(40, 50, dtype=dtype, seed=1))
    np.testing.assert_array_equal(tripled, np.asarray(product).astype(np.float32) * 3)


@DTYPES
def test_a_setting_has_each_result_rounded(tiny, dtype):
    f = st.jit(lambda x, y: x * y + x - y * y)
    x, y = data(40, 50, dtype=dtype), data(40, 50, dtype=dtype, seed=1)
    once, setting = bits(f(x, y)), "shardtrace_allow_excess_precision"
    x, y = st.numpy.asarray(x), st.numpy.asarray(y)
    op_by_op = bits(x * y + x - y * y)
    with st.config.override(**{setting: False}):
        assert bits(f(x, y)) == op_by_op != once
    assert bits(f(x, y)) == once
    st.config.update(setting, False)
    try:
        assert bits(f(x, y)) == op_by_op
    finally:
        st.config.update(setting, True)


@DTYPES
def test_jax_on_cpu_rounds_each_result_as_the_setting_does(dtype):
    jax = pytest.importorskip("jax")

    def f(lax, x, y):
        z = lax.max(lax.add(lax.mul(x, y), x), lax.neg(y))
        return lax.sub(z, lax.mul(lax.convert_element_type(
            lax.convert_element_type(y, np.float32), dtype), z))
    x, y = data(300, 300, dtype=dtype), data(300, 300, dtype=dtype, seed=1)
    theirs = jax.jit(lambda x, y: f(jax.lax, x, y))(x, y)
    assert bits(each_rounded(lambda x, y: f(lax, x, y), x, y)) == bits(np.asarray(theirs))
    once = np.asarray(st.jit(lambda x, y: f(lax, x, y))(x, y)).astype(np.float32)
    scale = np.maximum(1, np.abs(np.asarray(theirs).astype(np.float32)))
    assert (np.abs(once - np.asarray(theirs).astype(np.float32)) / scale
            < 40 * float(jnp.finfo(dtype).eps)).all()
