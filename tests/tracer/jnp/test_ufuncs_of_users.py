"""`frompyfunc`: functions of scalars with numpy's methods; `at` and `reduceat` of any ufunc."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp

X = np.arange(12, dtype=np.float32).reshape(4, 3) + 1


def scalar_sub(x, y):
    assert np.shape(x) == np.shape(y) == ()
    return x - y


MINE, NUMPYS = jnp.frompyfunc(scalar_sub, 2, 1), np.subtract
AROUND = pytest.mark.parametrize("around", [lambda f: f, st.jit], ids=["eager", "jit"])


@AROUND
def test_they_get_scalars_and_broadcast(around):
    np.testing.assert_array_equal(around(MINE)(X, X[0]), NUMPYS(X, X[0]))
    np.testing.assert_array_equal(around(lambda x: MINE.reduce(x, axis=1))(X),
                                  NUMPYS.reduce(X, axis=1))
    np.testing.assert_array_equal(around(MINE.accumulate)(X), NUMPYS.accumulate(X))
    np.testing.assert_array_equal(around(MINE.outer)(X[0], X), NUMPYS.outer(X[0], X))


@AROUND
@pytest.mark.parametrize("index", [1, (slice(None), 0), np.array([0, 2, 0]),
                                   (np.array([0, 0, 1]), np.array([1, 1, 2]))])
def test_at_applies_repeated_positions_repeatedly(around, index):
    for mine, numpys in ((MINE, NUMPYS), (jnp.subtract, np.subtract),
                         (jnp.logaddexp, np.logaddexp)):
        want = X.copy()
        numpys.at(want, index, np.float32(2))
        found = around(lambda x, f=mine: f.at(x, index, np.float32(2), inplace=False))(X)
        np.testing.assert_allclose(found, want, rtol=1e-6)


@AROUND
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("starts", [[0, 2], [0, 1, 2], [2, 0, 1]])
def test_reduceat_along_any_dimension(around, axis, starts):
    for mine, numpys in ((MINE, NUMPYS), (jnp.add, np.add), (jnp.maximum, np.maximum)):
        found = around(lambda x, i, f=mine: f.reduceat(x, i, axis=axis))(X, np.array(starts))
        np.testing.assert_allclose(found, numpys.reduceat(X, starts, axis=axis), rtol=1e-6)


def test_their_properties_are_read_only_and_they_compare_by_their_function():
    for f in (MINE, jnp.add):
        for name in ("nin", "nout", "nargs", "identity"):
            with pytest.raises(AttributeError):
                setattr(f, name, None)
    assert jnp.frompyfunc(scalar_sub, 2, 1) == MINE
    assert hash(jnp.frompyfunc(scalar_sub, 2, 1)) == hash(MINE)
    assert jnp.frompyfunc(scalar_sub, 2, 1, identity=0) != MINE


def test_what_a_mask_leaves_out_is_left_out_of_a_reduction_in_order():
    x, used = np.array([1.0, 2.0, 4.0, 5.0], np.float32), np.array([True, False, True, True])
    ratio = jnp.frompyfunc(lambda a, b: a / b, 2, 1)
    assert ratio.reduce(x, initial=80.0, where=used) == 80 / 1 / 4 / 5
    assert ratio.reduce(x, initial=80.0) == 80 / 1 / 2 / 4 / 5
    assert ratio.reduce(x) == 1 / 2 / 4 / 5
    one = jnp.frompyfunc(lambda a, b: a / b, 2, 1, identity=1)
    assert one.reduce(x, where=used) == 1 / 1 / 4 / 5
    assert one.reduce(x[:0]) == 1
    grid = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(ratio.reduce(grid, axis=1, initial=60.0, keepdims=True),
                               [[10.0], [0.5]])
    np.testing.assert_allclose(ratio.reduce(grid, axis=None, initial=720.0), 1.0)
