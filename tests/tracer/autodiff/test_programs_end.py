"""Programs end with who made them: what rules remember of types holds no program of a user."""
from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace import lax
from shardtrace import numpy as jnp
from shardtrace.ir.program import Program
from shardtrace.ir.support.caches import forget

pytestmark = pytest.mark.usefixtures("only_own_objects")

X = np.ones((4, 3), np.float32)


def with_derivative(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    named = st.custom_vjp(f)
    named.defvjp(lambda x: (f(x), x), lambda kept, ct: (ct * kept,))
    return named


FORMS: dict[str, Callable[[float], Callable[[Any], Any]]] = {
    "scan": lambda n: lambda x: lax.scan(lambda c, y: (c + y * n, c), x[0], x),
    "while": lambda n: lambda x: lax.while_loop(lambda c: c.sum() < n, lambda c: c + n, x),
    "cond": lambda n: lambda x: lax.cond(x[0, 0] > n, lambda y: y * n, lambda y: y, x),
    "call": lambda n: lambda x: st.jit(lambda y: y * n)(x),
    "remat": lambda n: lambda x: st.grad(lambda y: st.checkpoint(
        lambda z: jnp.sin(z) * n)(y).sum())(x),
    "custom_vjp": lambda n: lambda x: st.grad(lambda y: with_derivative(
        lambda z: jnp.sin(z) * n)(y).sum())(x),
    "gradient of a scan": lambda n: lambda x: st.grad(lambda y: lax.scan(
        lambda c, z: (c * z * n, c), y[0], y)[0].sum())(x),
    "vmap of a cond": lambda n: lambda x: st.vmap(
        lambda y: lax.cond(y[0] > n, lambda z: z * n, lambda z: z, y))(x),
}


def living() -> int:
    forget("tracer.autodiff.gradient_cache")     # which holds whole programs, up to a bound
    gc.collect()
    return sum(isinstance(o, Program) for o in gc.get_objects())


@pytest.mark.parametrize("form", FORMS)
def test_traced_programs_are_not_kept(form: str) -> None:
    def trace(n: float) -> None:
        st.jit(FORMS[form](n)).trace(X)
    for n in range(3):                  # what a first use makes may stay
        trace(n + 0.5)
    before = living()
    for n in range(10):
        trace(n + 20.5)
    assert living() <= before
