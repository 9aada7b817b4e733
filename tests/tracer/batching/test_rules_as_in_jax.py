"""Functions with rules of the user's for derivatives, mapped: as in JAX."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st

from ...real_jax import real_jax

X = np.arange(4, dtype=np.float32)


def summed_jvp(L: Any) -> Any:
    f = L.custom_jvp(lambda x: L.lax.psum(x, "i"))
    f.defjvp(lambda p, t: (L.lax.psum(p[0], "i"), 3 * L.lax.psum(t[0], "i")))
    return f


def summed_vjp(L: Any) -> Any:
    f = L.custom_vjp(lambda x: L.lax.psum(x, "i"))
    f.defvjp(lambda x: (L.lax.psum(x, "i"), None), lambda _, ct: (5 * ct,))
    return f


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("out_axes", [None, 0])
@pytest.mark.parametrize("make", [summed_jvp, summed_vjp])
def test_a_call_of_what_is_the_same_for_all_gives_one_result(make: Any, out_axes: Any, jit: bool
                                                             ) -> None:
    def case(L: Any) -> Any:
        f = make(L)
        f = L.jit(f) if jit else f
        mapped = L.vmap(lambda _, x: f(x), axis_name="i", in_axes=(0, None), out_axes=out_axes)
        found = [mapped(X, 2.0), L.grad(lambda x: L.numpy.sum(mapped(X, x)))(2.0)]
        if make is summed_jvp:
            found += L.jvp(lambda x: mapped(X, x), (2.0,), (1.0,))
        return found

    for ours, theirs in zip(case(st), case(real_jax()), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert np.shape(ours) == np.shape(theirs)


def test_a_rule_that_differs_from_example_to_example_where_the_function_does_not() -> None:
    f = st.custom_jvp(lambda x: st.lax.psum(x, "i"))
    f.defjvp(lambda p, t: (p[0], t[0] * st.lax.axis_index("i")))
    with pytest.raises(ValueError, match="depends on the example"):
        st.jvp(lambda x: st.vmap(lambda _, x: f(x), (0, None), axis_name="i")(X, x), (1.0,), (1.0,))


@pytest.mark.parametrize("wrap", ["plain", "vmap", "jit", "jit of vmap", "vmap of jit"])
def test_a_tangent_that_is_known_to_be_zero_stays_so(wrap: str) -> None:
    def case(L: Any) -> Any:
        seen = []
        f = L.custom_jvp(lambda x, y: y)

        def rule(primals: Any, tangents: Any) -> Any:
            seen.append([isinstance(t, L.custom_derivatives.SymbolicZero) for t in tangents])
            return primals[1], tangents[1]

        f.defjvp(rule, symbolic_zeros=True)
        g = lambda x: f(x, f(x, 1.0))  # noqa: E731
        run = {"plain": g, "vmap": L.vmap(g), "jit": L.jit(g), "jit of vmap": L.jit(L.vmap(g)),
               "vmap of jit": L.vmap(L.jit(g))}[wrap]
        slope = L.grad(lambda x: L.numpy.sum(run(x)))(X)
        return seen, np.asarray(slope), *map(np.asarray, L.jvp(run, (X,), (X,)))

    ours, theirs = case(st), case(real_jax())
    assert ours[0] == theirs[0]
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        np.testing.assert_array_equal(a, b)
