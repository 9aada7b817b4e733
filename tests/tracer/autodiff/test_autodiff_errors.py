"""Mistakes with derivatives, and the errors they get."""
from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.errors import UnexpectedTracerError

from ...user_files import user_file, user_module
from .test_autodiff import F32, V


@pytest.mark.parametrize("run,text", [
    (lambda: st.grad(lambda x: x)(V), "Gradient only defined for scalar-output functions. Output "
     "had shape: (3,)."),
    (lambda: st.grad(lambda x: x)(3), "grad requires real- or complex-valued inputs"),
    (lambda: st.grad(lambda x: x)(2j), "grad requires real-valued outputs"),
    (lambda: st.grad(lambda x: x.astype(int))(2.0), "differentiation of functions with integer"),
    (lambda: st.grad(lambda x: x, holomorphic=True)(2.0), "requires inputs with complex dtype"),
    (lambda: st.grad(lambda x: x, argnums=2)(2.0), "requires at least 3 positional arguments"),
    (lambda: st.jvp(lambda x: x, (V,), ((V,),)), "must have the same tree structure"),
    (lambda: st.jvp(lambda x: x, (V,), (np.ones(3, int),)), "expected tangent dtype float32"),
    (lambda: st.vjp(lambda x: (x, x), V)[1](V, V), "must be called with a single argument"),
    (lambda: st.jacfwd(lambda x: x)(3), "jacfwd requires real-valued inputs"),
    (lambda: st.linear_transpose(lambda x: x.astype(int), V), "linear_transpose only supports"),
    (lambda: st.grad(lambda x: (x, x, x), has_aux=True)(1.0), "two-element tuple"),
    (lambda: st.custom_jvp(lambda x: x).defjvps(None)
     or functools.partial(st.custom_jvp, nondiff_argnums=(0,))(max).defjvps(None),
     "Can't use ``defjvps``"),
])
def test_type_errors_have_jaxs_words(run: Callable[[], Any], text: str) -> None:
    with pytest.raises(TypeError) as caught:
        run()
    assert text in str(caught.value)


@pytest.mark.parametrize("run,text", [
    (lambda: st.jvp(lambda x: x, (V,), (np.ones(2, F32),)), "different primal and tangent shapes"),
    (lambda: st.vjp(lambda x: x, V)[1](np.ones(2, F32)), "for argument to VJP function: got "
     "float32[2], but expected float32[3]"),
    (lambda: st.vjp(lambda x: x, V)[1]((V,)), "unexpected tree structure"),
    (lambda: st.linearize(lambda x: x, V)[1](np.ones(2, F32)), "linearized function called on"),
])
def test_value_errors_have_jaxs_words(run: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:
        run()
    assert text in str(caught.value)


def _with_vjp(fwd: Any = None, bwd: Any = None) -> Any:
    f = st.custom_vjp(lambda x: x)
    f.defvjp(fwd or (lambda x: (x, None)), bwd or (lambda r, ct: (ct,)))
    return st.grad(lambda x: f(x).sum())


def _with_jvp(rule: Any) -> Any:
    f = st.custom_jvp(lambda x: x)
    f.defjvp(rule)
    return st.grad(lambda x: f(x).sum())


@pytest.mark.parametrize("function,text", [
    (_with_vjp(bwd=lambda r, ct: ct), "same container (pytree) structure as the args tuple"),
    (_with_vjp(bwd=lambda r, ct: (ct, ct)), "tuple of length equal to the number of arguments"),
    (_with_vjp(bwd=lambda r, ct: (ct[0],)), "at output[0] the bwd rule produced an output of type "
     "float32[] corresponding to an input of type float32[3]"),
    (_with_vjp(fwd=lambda x: x), "instead of a pair the fwd rule"),
    (_with_jvp(lambda p, t: p[0]), "must produce a pair (list or tuple of length two)"),
    (_with_jvp(lambda p, t: (p[0], t)), "equal container (pytree) structures"),
    (_with_jvp(lambda p, t: (p[0], t[0][0])), "Expected float32[3] (tangent type of float32[3]) "
     "but got float32[]."),
])
def test_custom_rules_are_checked(function: Callable[[Any], Any], text: str) -> None:
    for f in (function, st.jit(function)):
        with pytest.raises((TypeError, ValueError)) as caught:
            f(V)
        assert text in str(caught.value)


def test_a_custom_function_without_a_rule() -> None:
    with pytest.raises(AttributeError, match="No JVP defined for custom_jvp function"):
        st.custom_jvp(lambda x: x)(1.0)
    with pytest.raises(AttributeError, match="No VJP defined for custom_vjp function"):
        st.custom_vjp(lambda x: x)(1.0)


def test_differentiating_by_what_a_custom_function_closes_over() -> None:
    def f(x):
        g = st.custom_jvp(lambda a: a * x)
        g.defjvp(lambda p, t: (g(*p), t[0]))
        return g(x)
    with pytest.raises(UnexpectedTracerError, match="closed-over value"):
        st.grad(f)(1.0)


def test_rules_of_custom_vjp_close_over_values_that_are_not_differentiated() -> None:
    def rules(y, primal=lambda t: t * 2):
        g = st.custom_vjp(primal)
        g.defvjp(lambda t: (t * y, None), lambda _, ct: (ct * y + 1,))
        return g

    def f(x):
        y = jnp.arange(3.).sum() + 1            # 4, whatever x is
        return rules(y)(x)
    assert float(st.grad(f)(1.0)) == float(st.jit(st.grad(f))(1.0)) == 5
    assert float(st.vmap(st.grad(f))(jnp.arange(2.)).sum()) == 10

    def moved(x):
        return rules(jnp.sin(x))(x)
    with pytest.raises(UnexpectedTracerError):
        st.grad(moved)(1.0)


def test_a_custom_vjp_function_that_closes_over_what_moves_follows_its_rule_as_in_jax() -> None:
    def f(x):
        y = jnp.sin(x)
        g = st.custom_vjp(lambda t: t * y)
        g.defvjp(lambda t: (t * 2, None), lambda _, ct: (ct * 3,))
        return g(x)
    assert float(st.grad(f)(1.0)) == float(st.jit(st.grad(f))(1.0)) == 3
    with pytest.raises(UnexpectedTracerError, match="closed-over value"):
        st.grad(st.jit(f))(1.0)


def test_slopes_of_functions_that_look_at_bits_and_of_even_functions() -> None:
    x = jnp.array([3.0, -0.75, 0.0, jnp.inf], np.float32)
    assert slopes(lambda v: jnp.frexp(v)[0], x[:3]) == [0.25, 1, 1]
    assert slopes(lambda v: jnp.ldexp(v, 3), x) == [8, 8, 1, 1]
    assert slopes(jnp.i0, jnp.array([0.0])) == [0]
    for dtype in (np.float32, jnp.bfloat16):
        points = jnp.array([jnp.inf, -jnp.inf, jnp.nan, 0], dtype)
        assert slopes(st.scipy.special.i1e, points) == [0, 0, 0.5, 0.5]


def test_the_slope_of_a_reduction_from_a_number() -> None:
    def f(x):
        return st.lax.reduce(x, 0.0, jnp.add, (0,)).sum()
    x = jnp.arange(6.0).reshape(2, 3)
    assert float(st.jvp(f, (x,), (x,))[1]) == 15
    assert st.grad(f)(x).tolist() == [[1.0] * 3] * 2


def slopes(f, x):
    return st.vmap(st.grad(f))(x).tolist()


OPERATIONS = {
    "segment_prod": "st.ops.segment_prod(y, jnp.array([0, 0, 1, 1]), 2)",
    "while_loop": "lax.while_loop(lambda c: c.sum() < 10, lambda c: c * y, y)",
    "pure_callback": "st.pure_callback(abs, y, y)",
    "eig": "jnp.linalg.eig(y.reshape(2, 2))[1].real",
    "jit": "st.jit(lambda v: lax.while_loop(lambda c: c.sum() < 10, lambda c: c * v, v))(y)",
    "custom_vjp": "bad(y)",
}
OF_OPERATIONS = """\
import numpy as np
import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

@st.custom_vjp
def bad(x):
    return x
bad.defvjp(lambda x: (x, None), lambda _, g: (
    jnp.dot(g, jnp.ones(3)),))

def loss(x):
    y = x * 2
    z = {}
    return z.sum()

x = np.ones(4, np.float32)
"""


@pytest.mark.parametrize("how", ["st.grad(f)", "st.jit(st.grad(f))", "st.vmap(st.grad(f))"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_error_of_a_derivative_rule_is_told_where_the_operation_is(
        name: str, how: str, tmp_path: pathlib.Path) -> None:
    """A rule of the user's own is reported where it stands itself."""
    file = user_file(tmp_path, OF_OPERATIONS.format(OPERATIONS[name]))
    with user_module(file) as module, pytest.raises(
            (ValueError, NotImplementedError, TypeError)) as caught:
        x = module.x[None] if "vmap" in how else module.x
        eval(how, {"st": st, "f": module.loss})(x)
    line = 10 if name == "custom_vjp" else 14
    assert f"--> {file.name}:{line}:" in str(caught.value)
