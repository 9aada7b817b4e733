"""Warnings name the user's line, however deep in the package it is noticed."""
from __future__ import annotations

import inspect

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

Z = np.ones(4, np.complex64)


def batched_product():
    mesh = st.make_mesh((2, 2), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)
    with st.set_mesh(mesh):
        x = st.device_put(jnp.ones((4, 2, 3)), P("X"))
        y = jnp.ones((4, 3, 2))
        lax.dot_general(y, x, (((2,), (1,)), ((0,), (0,))))


def raw_key():
    with st.legacy_prng_key("warn"):
        st.random.normal(st.random.PRNGKey(0))


def mapped_cast():
    st.vmap(lambda z: lax.convert_element_type(z, jnp.float32))(Z)


def other_rank():
    with st.numpy_rank_promotion("warn"):
        return jnp.ones((2, 3)) + jnp.ones(3)


@pytest.mark.parametrize("f, words", [
    (lambda: jnp.zeros(3, "float64"), "truncated to dtype float32"),
    (lambda: st.jit(lambda: jnp.zeros(3, "int64")).trace(), "truncated to dtype int32"),
    (lambda: jnp.asarray(Z).astype(np.float32), "discards the imaginary part|complex to real"),
    (lambda: st.jit(lambda z: lax.convert_element_type(z, np.float32))(Z), "discards the imag"),
    (mapped_cast, "discards the imaginary part"),
    (raw_key, "raw"),
    (other_rank, "automatic rank promotion"),
    (lambda: jnp.zeros(3, jnp.int32).at[0].set(1.5), "scatter inputs have incompatible types"),
    (batched_product, "the result follows lhs"),
    (lambda: st.jit(lambda x: x.sum(), donate_argnums=0)(jnp.ones(3)), "donated buffers"),
    (lambda: st.jit(abs, backend="cpu"), "backend and device argument on jit"),
])
def test_the_line_is_the_users(f, words):
    with pytest.warns(match=words) as said:
        f()
    here = range(*_span(f))
    for w in said:
        assert w.filename == __file__ and w.lineno in here, w


def _span(f):
    lines, first = inspect.getsourcelines(f)
    return first, first + len(lines)
