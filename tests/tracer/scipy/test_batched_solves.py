"""Solves with factors broadcast their batches, as in JAX."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import shardtrace as st
import shardtrace.scipy.linalg

from ...real_jax import real_jax
from ...rows import rows

SOLVES = {
    "solve_triangular": lambda L, a, b: L.solve_triangular(a, b, lower=True, trans=1),
    "cho_solve": lambda L, a, b: L.cho_solve((a, True), b),
    "lu_solve": lambda L, a, b: L.lu_solve(L.lu_factor(a), b),
    "lu_solve, transposed": lambda L, a, b: L.lu_solve(L.lu_factor(a), b, trans=1),
}
SHAPES = [((4, 4), (4,)), ((4, 4), (4, 2)), ((3, 4, 4), (4,)), ((3, 4, 4), (4, 2)),
          ((3, 4, 4), (3, 4, 2)), ((4, 4), (3, 4, 2)), ((3, 4, 4), (3, 4)), ((4, 4, 4), (4, 4)),
          ((2, 1, 4, 4), (3, 4, 2)), ((3, 4, 4), (3,)), ((3, 4, 4), (2, 4, 2)),
          ((2, 3, 4, 4), (2, 3, 4))]


def outcome(L: Any, solve: Any, a: np.ndarray, b: np.ndarray) -> Any:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            x = np.asarray(solve(L.scipy.linalg, a, b))
        except ValueError as e:
            return str(e)[:50], []
    return x, [str(w.message).split("linalg.")[-1] for w in said if w.category is FutureWarning]


@rows("name", SOLVES)
@rows("of_a, of_b", SHAPES)
def test_as_in_jax(name: str, of_a: tuple[int, ...], of_b: tuple[int, ...]) -> None:
    jax = real_jax()
    rng = np.random.default_rng(0)
    a = (rng.normal(size=of_a) + 3 * np.eye(4)).astype(np.float32)
    b = rng.normal(size=of_b).astype(np.float32)
    (ours, said), (theirs, expected) = (outcome(L, SOLVES[name], a, b) for L in (st, jax))
    assert set(said) == set(expected)
    if isinstance(theirs, str):
        assert isinstance(ours, str) and ours[:27] == theirs[:27]
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
        assert ours.shape == theirs.shape
