"""Rules of custom_jvp and custom_vjp: arguments that are no arrays, float0, x64, checks."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.custom_derivatives import custom_vjp_primal_tree_values, zero_from_primal
from shardtrace.dtypes import float0


@pytest.mark.parametrize("given", [{"nondiff_argnames": ("f", "g")},
                                   {"nondiff_argnums": (0,), "nondiff_argnames": ("g",)}], ids=str)
def test_arguments_that_are_no_arrays_by_name(given) -> None:
    def plain(f, x, g=jnp.sin):
        return f(x) + g(x)

    by_vjp = st.custom_vjp(plain, **given)
    by_vjp.defvjp(lambda f, x, g: (plain(f, x, g), x), lambda f, g, x, ct: (7.0 * ct * x,))
    by_jvp = st.custom_jvp(plain, **given)
    by_jvp.defjvp(lambda f, g, primals, tangents: (
        plain(f, *primals, g), 7.0 * primals[0] * tangents[0]))
    for rule in (by_vjp, by_jvp):
        for call in (lambda x, rule=rule: rule(jnp.cos, x),
                     lambda x, rule=rule: rule(jnp.cos, x, g=jnp.sin)):
            for f in (st.value_and_grad(call), st.jit(st.value_and_grad(call))):
                value, slope = f(2.0)
                np.testing.assert_allclose(value, np.cos(2) + np.sin(2), rtol=1e-6)
                assert slope == 14


def test_zeros_without_numbers() -> None:
    zeros = jnp.zeros((2, 3), float0)
    assert isinstance(zeros, np.ndarray) and zeros.dtype == float0 and zeros.shape == (2, 3)
    for none in (b"", [b"", b""], np.zeros(3, float0), np.zeros(2, bool)):
        assert jnp.array(none, float0).dtype == jnp.asarray(none, float0).dtype == float0
    with pytest.raises(TypeError, match="bytes-like"):
        jnp.array(False, float0)

    @st.custom_jvp
    def f(x, y):
        return x, y

    @f.defjvp
    def f_jvp(primals, _):
        return primals, (2.0, zero_from_primal(primals[1]))

    _, (dx, dy) = st.jvp(f, (2.0, 3), (np.ones(()), jnp.zeros((), float0)))
    assert dx == 2 and dy.dtype == float0

    @st.custom_vjp
    def g(x, y):
        return x

    g.defvjp(lambda x, y: (x, (2.0, 1)), lambda *_: (2.0, 1))       # numbers of Python
    dx, dy = st.grad(g, allow_int=True, argnums=(0, 1))(2.0, 3)
    assert isinstance(dx, st.Array) and dx == 2 and dy.dtype == float0
    st.jit(lambda y: st.vjp(g, 0.0, y)[1](1.0)[0])(1)


def test_rules_are_as_wide_as_the_call() -> None:
    seen = []

    @st.custom_vjp
    def f(x):
        return x ** 2

    def fwd(x):
        seen.append(st.config.jax_enable_x64)
        return x ** 2, jnp.sin(x)

    def bwd(residual, ct):
        seen.append(st.config.jax_enable_x64)
        return (ct * residual,)

    f.defvjp(fwd, bwd)
    h = st.custom_jvp(lambda x: x ** 2)

    @h.defjvp
    def h_jvp(primals, tangents):
        seen.append(st.config.jax_enable_x64)
        return h(*primals), tangents[0] * jnp.sin(primals[0])

    for rule in (f, h):
        def wide(x, rule=rule):
            with st.enable_x64(True):
                return rule(jnp.array(x, jnp.float64))

        assert st.grad(wide)(5.0).dtype == np.float32
        assert seen and all(seen)
        seen.clear()
    _, slope = st.jvp(lambda x: wide(x), (5.0,), (1.0,))
    assert slope.dtype == np.float64


def test_checks_of_cotangents_and_their_values() -> None:
    @st.custom_vjp
    def f(x, y):
        return x

    f.defvjp(lambda x, y: (x, None), lambda _, ct: (ct, jnp.ones(3)))
    x, y = np.ones(2, np.float32), np.ones(4, np.float32)
    pull = st.vjp(f, x, y)[1]
    with pytest.raises(ValueError, match="same type as the args tuple"):
        pull(x)
    g = st.custom_vjp(lambda x: x["a"])
    g.defvjp(lambda x: (custom_vjp_primal_tree_values(x)["a"], None), lambda _, ct: ({"a": ct},),
             symbolic_zeros=True)
    assert st.grad(g)({"a": 3.0})["a"] == 1
    with pytest.raises(TypeError, match="unexpected leaf type"):
        custom_vjp_primal_tree_values([1.0])


def test_jit_gives_float0_as_numpy_does() -> None:
    f = st.jit(st.grad(lambda x, i: x[i], argnums=(0, 1), allow_int=True))
    for _ in range(3):
        dx, di = f(np.ones(2, np.float32), 1)
        assert dx.tolist() == [0, 1] and type(di) is np.ndarray and di.dtype == float0
