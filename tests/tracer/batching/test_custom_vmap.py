"""Functions whose batching is given by hand, as in JAX's documentation of `custom_vmap`."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.custom_batching import custom_vmap, sequential_vmap


def marked():
    """A function that adds 1, or 100 where it is mapped."""
    f = custom_vmap(lambda x: x + 1.0)
    f.def_vmap(lambda axis_size, in_batched, xs: (xs + 100.0, in_batched[0]))
    return f


@pytest.mark.parametrize("around", [lambda f: f, st.jit])
def test_the_rule_stands_for_the_function_under_vmap(around):
    f = marked()
    np.testing.assert_array_equal(around(f)(1.0), 2.0)
    np.testing.assert_array_equal(around(st.vmap(f))(jnp.arange(3.0)), [100, 101, 102])
    twice = around(st.vmap(st.vmap(f)))
    np.testing.assert_array_equal(twice(jnp.zeros((2, 3))), np.full((2, 3), 100))
    unmapped = around(st.vmap(lambda x: f(2.0) + x))
    np.testing.assert_array_equal(unmapped(jnp.arange(3.0)), [3, 4, 5])


def test_the_rule_is_told_what_is_mapped():
    told = []
    f = custom_vmap(lambda x, y: (x @ y["a"], y["b"]))

    @f.def_vmap
    def rule(axis_size, in_batched, xs, ys):
        told.append((axis_size, in_batched))
        return (jnp.einsum("ni,i->n", xs, ys["a"]), ys["b"]), (True, False)

    out, b = st.vmap(f, in_axes=(1, None), out_axes=(0, None))(
        jnp.arange(6.0).reshape(2, 3), {"a": jnp.ones(2), "b": jnp.float32(3)})
    assert told == [(3, [True, {"a": False, "b": False}])]
    np.testing.assert_array_equal(out, [3, 5, 7])
    assert b == 3


def test_derivatives_of_the_function_and_of_the_rule():
    f = custom_vmap(jnp.sin)
    f.def_vmap(lambda axis_size, in_batched, xs: (3 * jnp.sin(xs), in_batched[0]))
    x = jnp.arange(3.0)
    np.testing.assert_allclose(st.grad(f)(0.5), np.cos(0.5), rtol=1e-6)
    np.testing.assert_allclose(st.grad(lambda x: st.vmap(f)(x).sum())(x), 3 * np.cos(x), rtol=1e-6)
    out, moved = st.jvp(st.vmap(f), (x,), (jnp.ones(3),))
    np.testing.assert_allclose([out, moved], [3 * np.sin(x), 3 * np.cos(x)], rtol=1e-6)
    out, moved = st.vmap(lambda x: st.jvp(f, (x,), (1.0,)))(x)      # a value and no tangent
    np.testing.assert_allclose([out, moved], [3 * np.sin(x), 3 * np.cos(x)], rtol=1e-6)
    # Tangents alone are mapped.
    np.testing.assert_allclose(st.jacfwd(f)(0.5), 3 * np.cos(0.5), rtol=1e-6)
    np.testing.assert_allclose(st.jacfwd(f)(x), np.diag(3 * np.cos(x)), rtol=1e-6)


def test_one_after_the_other():
    calls = []

    def f(x, y):
        calls.append(x.shape)
        return x * y["k"], x.sum()

    x, k = jnp.arange(6.0).reshape(3, 2), {"k": jnp.arange(3.0)}
    out, total = st.vmap(sequential_vmap(f))(x, k)
    np.testing.assert_array_equal(out, np.asarray(x) * np.arange(3)[:, None])
    np.testing.assert_array_equal(total, [1, 5, 9])
    assert set(calls) == {(2,)}
    assert "scan" in str(st.make_jaxpr(st.vmap(sequential_vmap(jnp.sin)))(jnp.arange(3.0)))


def test_missing_and_ill_formed_rules_are_refused():
    f = custom_vmap(jnp.sin)
    with pytest.raises(AttributeError, match="No batching rule defined for custom_vmap function"):
        f(1.0)
    f.def_vmap(lambda axis_size, in_batched, xs: (xs, (True, True)))
    with pytest.raises(ValueError, match="structure of output value and output batching"):
        st.vmap(f)(jnp.zeros(2))
    f.def_vmap(lambda axis_size, in_batched, xs: ((xs, xs), (True, True)))
    with pytest.raises(ValueError, match="does not match that of original custom-vmapped function"):
        st.vmap(f)(jnp.zeros(2))
