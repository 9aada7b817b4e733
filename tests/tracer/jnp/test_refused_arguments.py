"""Arguments that functions of numpy and lax refuse, in JAX's words."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from tests.real_jax import real_jax

from ...rows import rows

ONES, SQUARE, OBJECT = np.ones(3, np.float32), np.eye(3, dtype=np.float32), object()
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
    **{f"array of {x}": lambda m, x=x: m.numpy.array(x)
       for x in ([None], (1, (None,)), {"a": 1}, {1, 2}, OBJECT, [OBJECT], [{}], np.sin)},
    "None beside an array": lambda m: m.numpy.array([m.numpy.ones(2), [None, 1]]),
    **{f"zeros of shape {n!r}": lambda m, n=n: m.numpy.zeros(n)
       for n in (1.5, "ab", None, np.float32(2), {2}, (2, 3.0))},
    "eye": lambda m: m.numpy.eye(1.5), "eye of two sizes": lambda m: m.numpy.eye(2, 1.5),
    **{name: lambda m, f=f: m.jit(lambda n: f(m, n))(1) for name, f in {
        "eye, traced": lambda m, n: m.numpy.eye(n),
        "reshape, traced": lambda m, n: m.numpy.asarray(ONES).reshape(n, 3),
        "sum, traced": lambda m, n: m.numpy.sum(SQUARE, n),
        "roll, traced": lambda m, n: m.numpy.roll(SQUARE, 1, n),
        "squeeze, traced": lambda m, n: m.numpy.squeeze(SQUARE, n),
        "expand_dims, traced": lambda m, n: m.numpy.expand_dims(SQUARE, n),
        "softmax, traced": lambda m, n: m.nn.softmax(m.numpy.asarray(SQUARE), n),
        "linspace, traced": lambda m, n: m.numpy.linspace(0, 1, n),
        "one_hot, traced": lambda m, n: m.nn.one_hot(0, n),
        "nonzero, traced": lambda m, n: m.numpy.nonzero(ONES, size=n),
        "slice, traced": lambda m, n: m.numpy.asarray(ONES)[:n],
        "second slice, traced": lambda m, n: m.numpy.asarray(SQUARE)[0, None, ::n],
        "slice behind an ellipsis, traced": lambda m, n: m.numpy.asarray(SQUARE).at[..., n:].set(1),
    }.items()},
    **{f"trees {a} and {b}": lambda m, a=a, b=b: m.tree.map(lambda x, y: x, a, b)
       for a, b in (({"a": 1}, {"b": 2}), ({"a": 1}, {"a": 1, "b": 2}), ({1: 2}, {"a": 2}),
                    ([{"a": 1, "c": 3}], [{"a": 1, "b": 2}]))},
}


@rows("name", CASES)
def test_is_refused_in_the_words_of_jax(name):
    refused = []
    for m in (st, real_jax()):
        with pytest.raises((TypeError, ValueError, IndexError)) as e:
            CASES[name](m)
        refused.append((type(e.value).__name__, str(e.value).split("\n")[0]))
    assert refused[0] == refused[1]


@pytest.mark.parametrize("f", ["tril_indices_from", "triu_indices_from"])
def test_indices_of_triangles_are_of_matrices(f):
    with pytest.raises(ValueError, match="Only 2-D inputs are accepted"):
        getattr(st.numpy, f)(ONES)


def test_a_period_is_one_number():
    with pytest.raises(ValueError, match="period must be a scalar"):
        st.numpy.interp(ONES, ONES, ONES, period=ONES)
