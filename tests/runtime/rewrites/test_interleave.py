"""Arrays whose elements alternate are joined instead of spread over zeros and added."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.runtime.rewrites.pipeline import run_execution_passes

X = np.random.default_rng(0).normal(size=(9, 8)).astype(np.float32)


def ops(f, *args):
    return [e.op.name for e in run_execution_passes(st.jit(f).trace(*args).jaxpr.jaxpr).eqns]


def alternate(x, y, axis, swapped, more=0):
    """x and y in turns, as a sum."""
    dims, zero = x.ndim, np.float32(0)
    less = x.shape[axis] - y.shape[axis]
    even, odd = [[(0, 0, 0)] * dims for _ in range(2)]
    even[axis], odd[axis] = (0, 1 - less + more, 1), (1, less + more, 1)
    parts = [lax.pad(x, zero, even), lax.pad(y, zero, odd)]
    return lax.add(*parts[::-1] if swapped else parts)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("axis", "n"), [(0, 9), (0, 8), (1, 8), (1, 7), (0, 3)])
def test_elements_that_alternate_are_joined(axis, n, swapped):
    part = X[:n] if axis == 0 else X[:, :n]
    x, y = ((part[::2], part[1::2]) if axis == 0 else (part[:, ::2], part[:, 1::2]))

    def f(x, y):
        return alternate(x, y, axis, swapped)
    assert "pad" not in ops(f, x, y)
    np.testing.assert_array_equal(st.jit(f)(x, y), part)


def test_gradients_of_every_second_element_are_joined():
    def f(x):
        return (x[:, ::2] * x[:, 1::2] ** 2).sum()
    found = ops(st.grad(f), X)
    assert "pad" not in found and "add_any" not in found
    a, b = X[:, ::2], X[:, 1::2]
    want = np.stack([b * b, 2 * a * b], -1).reshape(X.shape)
    np.testing.assert_allclose(st.jit(st.grad(f))(X), want, rtol=1e-6)


@pytest.mark.parametrize("f", [
    lambda x: alternate(x, x, 0, False, more=1),                    # zeros remain
    lambda x: lax.pad(x, np.float32(0), [(0, 1, 1), (0, 0, 0)])
    + lax.pad(x, np.float32(0), [(0, 1, 1), (0, 0, 0)]),            # these overlap
    lambda x: lax.pad(x, np.float32(0), [(0, 1, 1), (0, 1, 1)])
    + lax.pad(x, np.float32(0), [(1, 0, 1), (1, 0, 1)]),            # along two dimensions
    lambda x: lax.pad(x, np.float32(1), [(0, 1, 1), (0, 0, 0)])
    + lax.pad(x, np.float32(1), [(1, 0, 1), (0, 0, 0)])])
def test_other_sums_stay_as_they_are(f):
    assert "pad" in ops(f, X)


def test_what_others_read_stays():
    def f(x):
        spread = lax.pad(x, np.float32(0), [(0, 1, 1), (0, 0, 0)])
        return spread, spread + lax.pad(x, np.float32(0), [(1, 0, 1), (0, 0, 0)])
    assert ops(f, X).count("pad") == 2


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_associative_scans_are_sums(n):
    x = np.random.default_rng(1).normal(size=(n, 3)).astype(np.float32)
    f = st.jit(lambda x: lax.associative_scan(jnp.add, x))
    np.testing.assert_allclose(f(x), np.cumsum(x, 0), rtol=1e-4, atol=1e-5)


def test_an_array_of_which_padding_cuts_the_end_is_left():
    def f(x, y):
        zero = np.float32(0)
        return lax.pad(x, zero, [(0, 2, 1)]) + lax.pad(y, zero, [(1, -1, 1)])
    x, y = np.arange(1, 5, dtype=np.float32), np.arange(11, 16, dtype=np.float32)
    assert "pad" in ops(f, x, y)
    np.testing.assert_array_equal(st.jit(f)(x, y), [1, 11, 2, 12, 3, 13, 4, 14, 0])
