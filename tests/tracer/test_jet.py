"""Taylor series through functions: as those of nested derivatives in t, and as JAX's."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.experimental.jet import fact, jet
from tests.real_jax import real_jax

FUNCTIONS = {
    "sin": jnp.sin,
    "quotient": lambda x: 1 / (1 + x * x),
    "exp_tanh": lambda x: jnp.exp(jnp.tanh(x)),
    "sum_of_logs": lambda x: jnp.log(x).sum(),
    "matrix": lambda x: (x[:2] @ jnp.ones((2, 3)) * x.prod(), {"sorted": jnp.sort(x)}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_terms_are_the_derivatives_along_the_curve(name):
    f, x = FUNCTIONS[name], jnp.array([0.5, 1.5, 0.25])
    terms = [jnp.array([1.0, -0.5, 2.0]), jnp.array([0.5, 0.0, -1.0]), jnp.array([0.1, 0.2, 0.3])]
    out, series = jet(f, (x,), (terms,))

    def along(t):
        return f(x + terms[0] * t + terms[1] * t ** 2 / 2 + terms[2] * t ** 3 / 6)

    derivative = along
    for k in range(3):
        derivative = st.jacfwd(derivative)
        for have, want in zip([s[k] for s in st.tree.leaves(series, is_leaf=lambda x: isinstance(
                x, list))], st.tree.leaves(derivative(0.0)), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
    assert st.tree.structure(out) == st.tree.structure(f(x))


def test_coefficients_without_factorials():
    out, terms = jet(lambda x: x ** 3, (2.0,), ([1.0, 0.0, 0.0],), factorial_scaled=False)
    np.testing.assert_allclose([out, *terms], [8, 12, 6, 1])
    with pytest.raises(ValueError, match="inconsistent lengths"):
        jet(jnp.add, (1.0, 2.0), ([1.0], [1.0, 2.0]))


def test_series_are_jaxs():
    jax = pytest.importorskip("jax")
    from jax.experimental import jet as real
    args = ((0.5, np.float32(2)), ([1.0, 0.5, 0.0], [np.float32(1), np.float32(0), np.float32(3)]))

    def f(m):
        return lambda x, y: (m.numpy.sin(x * y) / y, m.numpy.exp(-x))

    for have, want in zip(st.tree.leaves(jet(f(st), *args)),
                          jax.tree.leaves(real.jet(f(jax), *args)), strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=1e-5)


@pytest.mark.parametrize("n", [3, 3.0, np.float32(3), np.arange(3), np.int64(4)], ids=repr)
def test_a_factorial_is_as_weakly_typed_as_in_jax(n):
    real_jax()
    got, want = fact(n), pytest.importorskip("jax.experimental.jet").fact(n)
    assert (got.dtype, got.weak_type) == (want.dtype, want.weak_type)
    np.testing.assert_allclose(got, want, rtol=1e-5)
