"""Convolutions and windows along split spatial dimensions, and their derivatives, stay split."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

from ..agreement import agree

NHC = ("NHC", "HIO", "NHC")


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("sizes, spec", [((8,), (None, "x")), ((2, 4), (None, "y", "x"))])
@given(data=draw.data())
@settings(max_examples=15, deadline=None)
def test_any_convolution_and_its_derivatives(sizes, spec, data):
    stride, kernel = data.draw(draw.integers(1, 3)), data.draw(draw.integers(1, 4))
    dilation, spread = data.draw(draw.integers(1, 2)), data.draw(draw.sampled_from([1, 1, 2, 3]))
    padding = (data.draw(draw.integers(-1, 4)), data.draw(draw.integers(-1, 5)))
    x, k = numbers(2, 48, 4), numbers(kernel, 4, 2, seed=1)

    def f(x, k):
        return lax.conv_general_dilated(x, k, (stride,), (padding,), lhs_dilation=(spread,),
                                        rhs_dilation=(dilation,), dimension_numbers=NHC)

    agree(lambda x, k: (f(x, k), st.grad(lambda x, k: jnp.sum(f(x, k) ** 2), (0, 1))(x, k)),
          [x, k], [spec, ()], None, sizes, rtol=1e-4)


@pytest.mark.parametrize("f, most", [
    (lambda x, k: lax.conv_transpose(x, k, (2,), "SAME", dimension_numbers=NHC), 1),
    (lambda x, k: lax.conv_general_dilated(x, k, (2,), "SAME", dimension_numbers=NHC), 1),
    (lambda x, k: lax.conv_general_dilated(x, k, (1,), "SAME", rhs_dilation=(2,),
                                           dimension_numbers=NHC), 4),
    (lambda x, k: st.grad(lambda x: jnp.sum(lax.conv_general_dilated(
        x, k, (2,), "SAME", dimension_numbers=NHC) ** 2))(x), 2),
])
def test_only_edges_are_moved(f, most):
    x, k = numbers(1, 64, 4), numbers(3, 4, 4, seed=1)
    assert agree(f, [x, k], [(None, "x"), ()], (None, "x")) <= most * 4 * 4


@pytest.mark.parametrize("f, most", [
    (lambda x, k: jnp.sum(lax.conv_general_dilated(
        x, k, (3,), "SAME", dimension_numbers=NHC) ** 2), 8),
    (lambda x, k: jnp.sum(x[:, 1::3] ** 2), 9),
    (lambda x, k: jnp.sum(lax.reduce_window(x, 0., lax.add, (1, 5, 1), (1, 3, 1), "SAME") ** 2),
     14),
])
def test_gradients_by_strides_that_do_not_divide_blocks_move_only_edges(f, most):
    """4,096 rows over 8 devices, of which every third counts: blocks begin at different ones."""
    x, k = numbers(1, 4096, 16), numbers(3, 16, 16, seed=1)
    assert agree(st.grad(f), [x, k], [(None, "x"), ()], (None, "x")) <= most * 16 * 4


@pytest.mark.parametrize("sizes", [(8,), (3, 2)])
@given(data=draw.data())
@settings(max_examples=15, deadline=None)
def test_any_padding_of_a_split_dimension(sizes, data):
    low, high = data.draw(draw.integers(-3, 9)), data.draw(draw.integers(-3, 9))
    inner, value = data.draw(draw.integers(0, 4)), data.draw(draw.sampled_from([0.0, 2.0]))

    def f(x):
        y = lax.pad(x, value, ((0, 0, 0), (low, high, inner), (0, 0, 0)))
        return jnp.sin(y).sum(2), st.grad(lambda x: (lax.pad(
            x, value, ((0, 0, 0), (low, high, inner), (0, 0, 0))) ** 3).sum())(x)
    agree(f, [numbers(2, 48, 3)], [(None, "x")], None, sizes)


def test_the_gradient_of_a_kernel_is_a_sum_over_blocks_with_edges():
    x, k = numbers(4, 64, 8), numbers(3, 8, 8, seed=1)

    def f(k, x):
        return jnp.sum(lax.conv_general_dilated(x, k, (1,), "SAME", dimension_numbers=NHC) ** 2)

    edges, total = 2 * 4 * 8 * 4, 2 * k.nbytes * 7 // 8
    assert agree(st.grad(f), [k, x], [(), (None, "x")], ()) <= 3 * edges + total


@pytest.mark.parametrize("window", [2, 4])
@pytest.mark.parametrize("operator", [lax.max, lax.min])
def test_windows_side_by_side_are_chosen_from_without_an_exchange(window, operator):
    x = np.random.default_rng(0).permutation(64 * 3).astype(np.float32).reshape(64, 3)
    start = -np.inf if operator is lax.max else np.inf

    def f(x):
        pooled = lax.reduce_window(x, start, operator, (window, 1), (window, 1), "VALID")
        return jnp.sum(pooled ** 2)

    assert agree(st.grad(f), [x], [("x",)], ("x",)) == 0


@given(data=draw.data())
@settings(max_examples=10, deadline=None)
def test_any_pooling_and_its_derivative(data):
    window, stride = data.draw(draw.integers(1, 4)), data.draw(draw.integers(1, 4))
    padding = data.draw(draw.sampled_from(["SAME", "VALID"]))
    x = np.random.default_rng(0).permutation(48 * 3).astype(np.float32).reshape(48, 3)

    def f(x):
        most = lax.reduce_window(x, -np.inf, lax.max, (window, 1), (stride, 1), padding)
        return jnp.sum(most ** 2 + lax.reduce_window(x, 0., lax.add, (window, 1), (stride, 1),
                                                     padding))

    agree(st.grad(f), [x], [("x",)], ("x",), rtol=1e-4)
