"""Functions of operands of size 0 and of rank 0: refused, or given, as in JAX."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn


def zeros(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize("call, error, text", [
    (lambda: jnp.gradient(zeros(0, 4)), ValueError, "too small to calculate a numerical"),
    (lambda: jnp.gradient(zeros(1)), ValueError, "too small to calculate a numerical"),
    (lambda: jnp.linalg.cond(zeros(2, 0, 0)), ValueError, "must not be empty"),
    (lambda: jnp.linalg.cond(zeros(0, 0), 1), ValueError, "must not be empty"),
    (lambda: nn.dot_product_attention(*[zeros(1, 2, 0, 4)] * 3), ValueError, "must be heads"),
    (lambda: nn.dot_product_attention(*[zeros(1, 2, 3, 0)] * 3), ValueError, "must be heads"),
    (lambda: lax.scaled_dot(zeros(2, 4), zeros(4, 2), lhs_scale=zeros(2, 0)), TypeError,
     "must be divisible by its scale's"),
    (lambda: jnp.asarray(zeros()).view(np.complex64), ValueError, "view\\(\\) of a 0d array"),
    (lambda: lax.conv_transpose(zeros(), zeros(2, 2), (1,), "SAME"), ValueError,
     "at least two dimensions")])
def test_nothing_to_compute_with_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_of_nothing_there_is_something():
    assert jnp.poly(zeros(0)).shape == () and jnp.poly(zeros(0)) == 1
    assert jnp.gradient(zeros()) == []
    assert jnp.linalg.cond(zeros(0, 3, 3)).shape == (0,)
    with st.config.override(shardtrace_engine="per_device"):
        assert jnp.poly(zeros(2)).shape == (3,)
