"""check_grads holds derivatives against differences."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.custom_derivatives import zero_from_primal
from shardtrace.test_util import check_grads, check_jvp, check_vjp


def test_right_derivatives_pass():
    check_grads(lambda x, y: jnp.sin(x) @ y["w"], (np.ones(3, np.float32),
                                                 {"w": np.ones((3, 2), np.float32)}), order=2)
    check_grads(jnp.tanh, (0.3,), order=3, modes=["rev"])


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_wrong_derivatives_do_not(mode):
    @st.custom_jvp
    def f(x):
        return x * x

    f.defjvp(lambda primals, tangents: (f(*primals), 3 * tangents[0]))
    with pytest.raises(AssertionError, match="JVP tangent" if mode == "fwd" else "VJP cotangent"):
        check_grads(f, (2.0,), order=1, modes=(mode,))
    check_jvp(jnp.sin, lambda p, t: st.jvp(jnp.sin, p, t), (1.0,))
    with pytest.raises(AssertionError):
        check_vjp(jnp.sin, lambda x: st.vjp(jnp.cos, x), (1.0,))


def test_the_zero_tangent_of_a_value():
    np.testing.assert_array_equal(zero_from_primal(jnp.ones(2)), np.zeros(2))
    assert zero_from_primal(3).dtype == st.float0
    assert zero_from_primal(jnp.ones(2), symbolic_zeros=True).shape == (2,)
