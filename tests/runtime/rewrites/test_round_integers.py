"""Whole numbers that numpy finds in one step."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.runtime.rewrites.pipeline import run_execution_passes

X = np.concatenate([np.arange(-50, 50), [2**31 - 1, -2**31]]).astype(np.int32)


def ops(f, *args):
    return [e.op.name for e in run_execution_passes(st.jit(f).trace(*args).jaxpr.jaxpr).eqns]


@pytest.mark.parametrize("y", [1, -1, 2, 7, -7, 2**31 - 1])
def test_quotients_rounded_down(y):
    def f(x):
        return x // y

    assert ops(f, X) == ["floor_div"]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(st.jit(f)(X), np.floor_divide(X, np.int32(y)))
    np.testing.assert_array_equal(st.jit(lambda x: (x // y) * y + x % y)(X), X)


def test_what_else_is_read_stays():
    def f(x):
        return x // 7, lax.rem(x, np.int32(7)), lax.div(x, np.int32(7))

    for got, want in zip(st.jit(f)(X), (X // 7, np.fmod(X, 7), np.trunc(X / 7)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_other_quotients_stay_as_they_are():
    for f in (lambda x: x // x, lambda x: x // 0, lambda x: lax.div(x, np.int32(3))):
        assert "floor_div" not in ops(f, X)
    zeros = np.asarray(st.jit(lambda x: x // 0)(X))
    np.testing.assert_array_equal(zeros, np.where(X == 0, -1, -2))


def test_what_only_resembles_a_quotient_stays():
    def f(x):
        quotient, rest = lax.div(x, np.int32(7)), lax.rem(x, np.int32(5))
        below = (jnp.sign(x) != 1) & (rest != 0)
        return jnp.where(below, quotient - 1, quotient)

    assert "floor_div" not in ops(f, X)
    rest = np.fmod(X, 5)
    want = np.trunc(X / 7) - ((np.sign(X) != 1) & (rest != 0))
    np.testing.assert_array_equal(st.jit(f)(X), want)


def test_choosing_floor_or_ceil_by_sign_becomes_trunc():
    x = np.array([-2.5, -0.5, -0., 0., 0.5, 2.5, np.nan, np.inf, -np.inf, 1e20], np.float32)
    assert ops(jnp.trunc, x) == ["trunc"]
    got = np.asarray(st.jit(jnp.trunc)(x))
    np.testing.assert_array_equal(got, np.trunc(x))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(np.trunc(x)))

    def other(x):
        return jnp.where(x < 1, jnp.ceil(x), jnp.floor(x))
    assert "trunc" not in ops(other, x)
    np.testing.assert_array_equal(st.jit(other)(x), np.where(x < 1, np.ceil(x), np.floor(x)))
