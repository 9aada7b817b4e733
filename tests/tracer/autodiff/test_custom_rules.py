"""custom_jvp and custom_vjp: rules of the user for values, trees and transformations."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import custom_derivatives
from shardtrace.errors import UnexpectedTracerError

from .test_autodiff import V

# -- custom_jvp ------------------------------------------------------------------------------------

def scaled(factor: float = 10.0) -> Any:
    f = st.custom_jvp(lambda a, b: jnp.sin(a) * b)
    f.defjvp(lambda p, t: (f(*p), factor * jnp.cos(p[0]) * t[0] * p[1] + jnp.sin(p[0]) * t[1]))
    return f


@pytest.mark.parametrize("wrap", [lambda f: f, st.jit, lambda f: st.jit(st.jit(f))],
                         ids=["eager", "jit", "jit of jit"])
def test_custom_jvp_is_used_in_both_modes(wrap: Any) -> None:
    f = wrap(scaled())
    assert float(f(1.0, 2.0)) == pytest.approx(2 * np.sin(1), rel=1e-6)
    expected = 20 * np.cos(1)
    assert float(st.grad(f)(1.0, 2.0)) == pytest.approx(expected, rel=1e-6)
    assert float(st.jvp(f, (1.0, 2.0), (1.0, 0.0))[1]) == pytest.approx(expected, rel=1e-6)
    assert float(st.grad(st.grad(f))(1.0, 2.0)) == pytest.approx(-20 * np.sin(1), rel=1e-6)
    mapped = st.vmap(st.grad(f))(V, V)
    np.testing.assert_allclose(mapped, 10 * np.cos(V) * V, rtol=1e-5)


def test_custom_jvp_rule_and_function_may_look_at_values() -> None:
    @st.custom_jvp
    def f(a):
        return a * 2 if a > 0 else a * 3
    @f.defjvp
    def _(primals, tangents):
        (a,), (t,) = primals, tangents
        return f(a), t * (5.0 if a > 0 else 7.0)
    assert float(st.grad(lambda x: f(x * x))(3.0)) == 30.0
    assert float(st.grad(f)(-1.0)) == 7.0


def test_defjvps_gives_one_rule_per_argument() -> None:
    f = st.custom_jvp(lambda a, b: a * b)
    f.defjvps(lambda t, out, a, b: 2 * t * b, None)
    assert [float(g) for g in st.grad(f, argnums=(0, 1))(1.0, 3.0)] == [6.0, 0.0]


def test_symbolic_zeros_in_custom_jvp() -> None:
    seen = []
    f = st.custom_jvp(lambda a, b: a * b)
    def rule(primals, tangents):
        seen.append([isinstance(t, custom_derivatives.SymbolicZero) for t in tangents])
        return f(*primals), primals[1] * tangents[0]
    f.defjvp(rule, symbolic_zeros=True)
    assert float(st.grad(f)(2.0, 3.0)) == 3.0 and seen == [[False, True]]


# -- custom_vjp ------------------------------------------------------------------------------------

def reversed_only() -> Any:
    f = st.custom_vjp(lambda a, b: jnp.sin(a) * b)
    f.defvjp(lambda a, b: (f(a, b), (jnp.cos(a), b)), lambda r, ct: (10 * r[0] * ct * r[1], None))
    return f


@pytest.mark.parametrize("wrap", [lambda f: f, st.jit], ids=["eager", "jit"])
def test_custom_vjp_is_used_in_reverse_mode(wrap: Any) -> None:
    f = wrap(reversed_only())
    ga, gb = st.grad(f, argnums=(0, 1))(1.0, 2.0)
    assert float(ga) == pytest.approx(20 * np.cos(1), rel=1e-6) and float(gb) == 0.0
    assert float(st.grad(st.grad(f))(1.0, 2.0)) == pytest.approx(-20 * np.sin(1), rel=1e-6)
    np.testing.assert_allclose(st.vmap(st.grad(f))(V, V), 10 * np.cos(V) * V, rtol=1e-5)
    with pytest.raises(TypeError, match="can't apply forward-mode autodiff"):
        st.jvp(f, (1.0, 2.0), (1.0, 1.0))


def test_custom_vjp_nondiff_argnums_and_residual_trees() -> None:
    @functools.partial(st.custom_vjp, nondiff_argnums=(0,))
    def apply(f, x):
        return f(x)
    apply.defvjp(lambda f, x: (f(x), {"x": x, "n": 3}),
                 lambda f, r, ct: (f(r["x"]) * ct * r["n"],))
    g = st.grad(lambda x: apply(jnp.cos, x))(1.0)
    assert float(g) == pytest.approx(3 * np.cos(1), rel=1e-6)
    with pytest.raises(UnexpectedTracerError, match="nondiff_argnums"):
        st.grad(lambda x: apply(x, 1.0))(2.0)


def test_symbolic_zeros_in_custom_vjp() -> None:
    seen = {}
    f = st.custom_vjp(lambda a, b: (a * b, b))
    def fwd(a, b):
        seen["moved"] = (a.perturbed, b.perturbed)
        return f(a.value, b.value), b.value
    def bwd(b, cts):
        seen["zero"] = [isinstance(ct, custom_derivatives.SymbolicZero) for ct in cts]
        return cts[0] * b, None
    f.defvjp(fwd, bwd, symbolic_zeros=True)
    assert float(st.grad(lambda a: f(a, 3.0)[0])(2.0)) == 3.0
    assert seen == {"moved": (True, False), "zero": [False, True]}


def test_custom_gradient_replaces_the_derivative() -> None:
    @st.custom_gradient
    def f(x):
        return x**2, lambda ct: ct * 3 * jnp.sin(x)
    for wrap in (lambda g: g, st.jit):
        assert float(wrap(st.grad(f))(2.0)) == pytest.approx(3 * np.sin(2), rel=1e-6)
    @st.custom_gradient
    def g(x, y):
        return x * y, lambda ct: (ct * y, 2 * ct * x)
    assert [float(v) for v in st.grad(g, argnums=(0, 1))(3.0, 5.0)] == [5.0, 6.0]


def test_closure_convert_hoists_what_may_be_differentiated() -> None:
    def outer(x):
        converted, values = st.closure_convert(lambda y: jnp.sin(y) * x * V, 1.0)
        assert len(values) == 1
        return converted(2.0, *values).sum()
    assert float(st.grad(outer)(3.0)) == pytest.approx(np.sin(2) * V.sum(), rel=1e-6)


def test_a_rule_may_give_the_symbolic_zero_of_an_integer() -> None:
    @st.custom_jvp
    def f(n, x):
        return n + 1, x * 2

    def rule(primals, tangents):
        (n, x), (_, dx) = primals, tangents
        zero = st.custom_derivatives.SymbolicZero(st.typeof(n).to_tangent_aval())
        return f(n, x), (zero, 3 * dx)

    f.defjvp(rule, symbolic_zeros=True)
    assert st.grad(lambda x: f(jnp.int32(1), x)[1])(1.0) == 3


def test_truth_values_among_residuals_stay_those_of_python() -> None:
    seen = []

    @st.custom_vjp
    def f(x, flag):
        return x

    def bwd(residuals, ct):
        seen.append(residuals[1])
        return (ct * 2 if residuals[1] else ct, None)

    f.defvjp(lambda x, flag: (x, (x, True)), bwd)
    for g in (st.grad(f), st.jit(st.grad(f))):
        assert float(g(1.0, True)) == 2.0
    assert seen == [True, True] and all(type(x) is bool for x in seen)


def test_symbolic_zeros_of_cotangents_are_of_tangent_types_and_shapes_that_fit():
    seen = []

    @st.custom_vjp
    def keyed(key, x):
        return key, x

    def backward(_, cts):
        seen.append([(ct.shape, ct.dtype) for ct in cts[:1]])
        return None, cts[1]

    keyed.defvjp(lambda key, x: ((key.value, x.value), None), backward, symbolic_zeros=True)
    st.grad(lambda x: keyed(st.random.key(0), x)[1])(1.0)
    assert seen == [[((), st.dtypes.float0)]]

    @st.custom_vjp
    def swapped(x, y, z):
        return x, y, z

    swapped.defvjp(lambda x, y, z: ((x.value, y.value, z.value), None),
                   lambda _, cts: (cts[1], cts[0], cts[2]), symbolic_zeros=True)
    with pytest.raises(ValueError, match="Consider just returning a None here"):
        st.grad(lambda x, y, z: swapped(x, y, z)[2].sum(), argnums=2)(
            jnp.ones(1), jnp.ones(2), jnp.ones(3))


def test_functions_with_rules_see_known_values_where_these_are_evaluated_at_once():
    @st.custom_jvp
    def f(x):
        return x if x > 0 else -x

    @st.custom_vjp
    def g(x):
        return x if x > 0 else -x

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    g.defvjp(lambda x: (g(x), None), lambda _, ct: (ct,))

    @st.jit
    def known(y):
        with st.ensure_compile_time_eval():
            return y * (f(-2.0) + g(jnp.float32(-3.0)))

    assert known(1.0) == 5
