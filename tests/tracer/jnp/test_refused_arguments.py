"""Arguments that functions of numpy and lax refuse, in JAX's words."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from tests.real_jax import real_jax

from ...rows import rows

ONES, SQUARE = np.ones(3, np.float32), np.eye(3, dtype=np.float32)
PLACES = np.arange(3)
CASES = {
    "in": lambda m: SQUARE in m.numpy.asarray(ONES),
    "insert at a matrix": lambda m: m.numpy.insert(ONES, PLACES[:, None], 1),
    "insert at a float": lambda m: m.numpy.insert(ONES, 1.5, 1),
    "ravel_multi_index": lambda m: m.numpy.ravel_multi_index((PLACES, PLACES), (2**20, 2**20)),
    "tri": lambda m: m.numpy.tri(2, k=1.5), "tril": lambda m: m.numpy.tril(SQUARE, k=1.5),
    **{f"reduce_window {params}": lambda m, params=params: m.lax.reduce_window(
        ONES, np.float32(1), lambda a, b: a * b, *params) for params in (
            ((0,), (1,), "VALID"), ((2,), (-1,), "VALID"), ((2,), (1,), "VALID", (1,), (0,)))},
    "broadcast_shapes": lambda m: m.numpy.broadcast_shapes((-1,), (2,)),
    "arange": lambda m: m.numpy.arange(1j),
    "arange of an array": lambda m: m.numpy.arange(np.complex64(1), 3),
    "reduceat": lambda m: m.numpy.add.reduceat(ONES, ONES),
    "cross": lambda m: m.numpy.linalg.cross(ONES[:2], ONES[:2]),
    "tensorinv": lambda m: m.numpy.linalg.tensorinv(np.ones((2, 3, 4), np.float32)),
    "UPLO": lambda m: m.numpy.linalg.eigh(SQUARE, UPLO="X"),
    "norm": lambda m: m.numpy.linalg.norm(np.ones((2, 2, 2), np.float32), ord=2),
    "multi_dot": lambda m: m.numpy.linalg.multi_dot([SQUARE, np.ones((2, 2))]),
}


@rows("name", CASES)
def test_is_refused_in_the_words_of_jax(name):
    refused = []
    for m in (st, real_jax()):
        with pytest.raises((TypeError, ValueError)) as e:
            CASES[name](m)
        refused.append((type(e.value), str(e.value).split("\n")[0]))
    assert refused[0] == refused[1]


@pytest.mark.parametrize("f", ["tril_indices_from", "triu_indices_from"])
def test_indices_of_triangles_are_of_matrices(f):
    with pytest.raises(ValueError, match="Only 2-D inputs are accepted"):
        getattr(st.numpy, f)(ONES)


def test_a_period_is_one_number():
    with pytest.raises(ValueError, match="period must be a scalar"):
        st.numpy.interp(ONES, ONES, ONES, period=ONES)
