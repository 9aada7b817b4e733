"""What linearize and linear_transpose return: functions that are pytrees."""
from __future__ import annotations

from types import SimpleNamespace

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp


def test_a_linearized_function_goes_out_of_jit_and_in_again():
    at = st.jit(lambda x: st.linearize(lambda x: x ** 3, x)[1])(2.0)
    assert st.jit(lambda f, t: f(t))(at, 3.0) == 36.0
    assert at(1.0) == 12.0
    assert [float(x) for x in st.tree.leaves(st.tree.map(lambda r: r * 2, at)(1.0))] == [24.0]


def test_a_transposed_function_goes_out_of_jit_and_in_again():
    back = st.jit(lambda w: st.linear_transpose(lambda x: w * x, np.float32(0)))(2.0)
    assert st.jit(lambda f, ct: f(ct))(back, np.float32(3)) == (6.0,)


def test_a_function_is_transposed_at_whatever_has_a_shape_and_a_dtype():
    x = SimpleNamespace(shape=(3,), dtype=np.dtype(np.float32))
    (ct,) = st.linear_transpose(lambda x: 2 * x, x)(jnp.arange(3.0))
    assert ct.tolist() == [0.0, 2.0, 4.0]
