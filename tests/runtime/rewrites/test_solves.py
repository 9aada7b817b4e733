"""Systems of linear equations that numpy solves in one step."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.runtime.rewrites.pipeline import run_execution_passes

from ...executors import agree

RNG = np.random.default_rng(0)


def ops(f: Any, *args: Any) -> list[str]:
    return [e.op.name for e in run_execution_passes(st.jit(f).trace(*args).jaxpr.jaxpr).eqns]


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("a, b", [((4, 4), (4, 3)), ((4, 4), (4,)), ((5, 4, 4), (5, 4, 2)),
                                  ((2, 3, 4, 4), (2, 3, 4, 2)), ((5, 4, 4), (4, 2)),
                                  ((0, 4, 4), (0, 4, 2)), ((2, 0, 0), (2, 0, 1))])
def test_systems_are_solved_at_once(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = numbers(*a), numbers(*b)
    found = ops(jnp.linalg.solve, x, y)
    assert "solve" in found and not {"lu", "gather", "triangular_solve"} & {*found}
    np.testing.assert_allclose(st.jit(jnp.linalg.solve)(x, y), np.linalg.solve(x, y), rtol=1e-3)


@pytest.mark.parametrize("a", [(3000, 2, 2), (300, 300)])
def test_long_ones_are_solved_by_their_factors(a: tuple[int, ...]) -> None:
    x, y = numbers(*a), numbers(*a)
    assert "lu" in ops(jnp.linalg.solve, x, y)


def test_inverses_and_complex_systems() -> None:
    x = numbers(6, 5, 5) + 1j * numbers(6, 5, 5)
    x = x.astype(np.complex64)
    assert "solve" in ops(jnp.linalg.inv, x)
    np.testing.assert_allclose(st.jit(jnp.linalg.inv)(x), np.linalg.inv(x), rtol=1e-3, atol=1e-4)


def test_factors_that_others_read_stay() -> None:
    def f(a: Any, b: Any) -> Any:
        return jnp.linalg.solve(a, b), jnp.linalg.slogdet(a)
    for g in (st.grad(lambda a, b: jnp.linalg.solve(a, b).sum()), f):
        assert "lu" in ops(g, numbers(3, 3), numbers(3, 2))
    assert "lu" in ops(jnp.linalg.solve, numbers(3, 3), numbers(5, 3, 2))    # they are found once


def test_a_singular_matrix_of_several_gives_what_it_does_alone() -> None:
    a, b = numbers(3, 2, 2), numbers(3, 2, 1)
    a[1] = [[1, 2], [2, 4]]
    found = agree(jnp.linalg.solve, a, b, rtol=1e-4)
    np.testing.assert_allclose(found[::2], np.linalg.solve(a[::2], b[::2]), rtol=1e-3)
    assert not np.isfinite(found[1]).any()
    a[1] = np.nan
    assert np.isnan(np.asarray(st.jit(jnp.linalg.solve)(a, b))[1]).all()


def test_split_right_hand_sides_of_one_matrix() -> None:
    mesh = st.make_mesh((4,), ("x",))
    a, b = numbers(3, 3), numbers(3, 8)
    split = st.device_put(b, st.NamedSharding(mesh, st.P(None, "x")))
    np.testing.assert_allclose(agree(jnp.linalg.solve, a, split, rtol=1e-4),
                               np.linalg.solve(a, b), rtol=1e-3)
