"""Rings along several axes: products of blocks on a grid of devices are products of the wholes."""
from __future__ import annotations

import executed
import numpy as np
import pytest
from executed import normal
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.context import config
from shardtrace.runtime.rewrites.flatten import every_equation
from shardtrace.sharding import PartitionSpec as P

BLOCKS = P("r", "c")


@pytest.fixture(autouse=True, scope="module")
def devices():
    with config.override(jax_num_cpu_devices=16):
        yield


def grid(n):
    return st.make_mesh((n, n), ("r", "c"))


def results(f, args, mesh, specs=BLOCKS, out=BLOCKS):
    """What both executors give, and the ops that the simulated one executes."""
    found, flat = executed.results(f, args, mesh, specs, out)
    return found, {e.op.name for e in every_equation(flat.eqns)}


def ring(n, by=-1):
    return [(i, (i + by) % n) for i in range(n)]


def repeat(looped, length, turn, carry):
    if looped:
        return lax.fori_loop(0, length, turn, carry)
    for i in range(length):
        carry = turn(i, carry)
    return carry


def cannon(n, looped=False, joint=True):
    """Blocks of rows and columns go round, from where each device's have one place in the sum."""
    def f(a, b):
        r, c = lax.axis_index("r"), lax.axis_index("c")
        if joint:
            each = [(i, j) for i in range(n) for j in range(n)]
            a = lax.ppermute(a, ("r", "c"), [(i * n + j, i * n + (j - i) % n) for i, j in each])
            b = lax.ppermute(b, ("r", "c"), [(i * n + j, (i - j) % n * n + j) for i, j in each])
        else:
            for i in range(1, n):
                a = jnp.where(r >= i, lax.ppermute(a, "c", ring(n)), a)
                b = jnp.where(c >= i, lax.ppermute(b, "r", ring(n)), b)

        def turn(i, carry):
            out, a, b = carry
            return out + a @ b, lax.ppermute(a, "c", ring(n)), lax.ppermute(b, "r", ring(n))
        out = lax.pcast(jnp.zeros((a.shape[0], b.shape[1]), a.dtype), ("r", "c"), to="varying")
        return repeat(looped, n, turn, (out, a, b))[0]
    return f


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("n", [2, 4])
def test_products_of_blocks_that_go_round_rows_and_columns_are_one(n, looped):
    a, b = normal(8, 12), normal(12, 16)
    (got,), ops = results(cannon(n, looped), (a, b), grid(n))
    np.testing.assert_allclose(got, a @ b, rtol=2e-5, atol=2e-5)
    assert ops <= {"all_gather", "dot_general", "copy"}


def test_so_is_the_gradient():
    mesh, a, b, w = grid(2), normal(8, 12), normal(12, 16), normal(8, 16)
    mapped = st.shard_map(cannon(2), mesh=mesh, in_specs=BLOCKS, out_specs=BLOCKS)
    da, db = st.jit(st.grad(lambda a, b: (mapped(a, b) * w).sum(), argnums=(0, 1)))(a, b)
    np.testing.assert_allclose(da, w @ b.T, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(db, a.T @ w, rtol=2e-5, atol=2e-5)


def test_what_is_chosen_by_each_device_is_left():
    a, b = normal(8, 12), normal(12, 16)
    (got,), _ = results(cannon(2, joint=False), (a, b), grid(2))
    np.testing.assert_allclose(got, a @ b, rtol=2e-5, atol=2e-5)


def test_rings_along_one_axis_after_the_other():
    def f(x):
        total = x
        for axis in "r", "c":
            x = total
            for _ in range(3):
                x = lax.ppermute(x, axis, ring(4))
                total = total + x
        return total
    x = normal(8, 12)
    (got,), ops = results(f, (x,), grid(4))
    want = np.tile(x.reshape(4, 2, 4, 3).sum((0, 2)), (4, 4))
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    assert ops == {"psum", "copy"}


def summa(n, looped=False, is_mine=lambda me, k: me == k, names="cr"):
    """Step by step, one device of each row and one of each column give their blocks to all."""
    def f(a, b):
        here, there = (lax.axis_index(name) for name in names)

        def turn(k, out):
            row = lax.psum(jnp.where(is_mine(here, k), a, 0), names[0])
            column = lax.psum(jnp.where(is_mine(there, k), b, 0), names[1])
            return out + row @ column
        out = lax.pcast(jnp.zeros((a.shape[0], b.shape[1]), a.dtype), ("r", "c"), to="varying")
        return repeat(looped, n, turn, out)
    return f


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("n", [2, 4])
def test_products_of_blocks_that_are_given_to_rows_and_columns_are_one(n, looped):
    a, b = normal(8, 12), normal(12, 16)
    (got,), ops = results(summa(n, looped), (a, b), grid(n))
    np.testing.assert_allclose(got, a @ b, rtol=2e-5, atol=2e-5)
    assert ops <= {"all_gather", "dot_general", "copy"}


def test_blocks_may_be_given_in_another_order():
    a, b = normal(8, 12), normal(12, 16)
    (got,), ops = results(summa(4, False, lambda me, k: (me + 1) % 4 == k), (a, b), grid(4))
    np.testing.assert_allclose(got, a @ b, rtol=2e-5, atol=2e-5)
    assert ops <= {"all_gather", "dot_general", "copy"}


@pytest.mark.parametrize("is_mine", [
    lambda me, k: me >= k, lambda me, k: me == 0, lambda me, k: me == k - 1])
def test_what_several_give_or_none_is_a_sum(is_mine):
    (_,), ops = results(summa(2, False, is_mine), (normal(8, 8), normal(8, 8)), grid(2))
    assert "psum_invariant" in ops


def test_what_is_given_is_a_number_or_not():
    a, b = normal(8, 8), normal(8, 8)
    a[3, 5], b[2, 2] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        (got,), ops = results(summa(2), (a, b), grid(2))
        np.testing.assert_allclose(got, a @ b, rtol=2e-5, atol=2e-5)
    assert "all_gather" in ops


def test_a_value_that_one_device_gives_to_all_is_no_exchange_of_blocks():
    """It is on several devices then: no `ppermute` does that."""
    def f(x, w):
        me, total = lax.axis_index("c"), 0.
        for k in range(2):
            total = total + lax.psum(jnp.where(me == 0, x, 0), "c") * (k + 1) + x @ w
        return total
    results(f, (normal(8, 8), normal(8, 8)), grid(2))


@given(draw.data())
@settings(max_examples=30)
def test_any_rings_on_a_grid_give_what_they_say(data):
    """Random directions, starts, lengths and axes: both executors agree."""
    n = data.draw(draw.sampled_from([2, 3]))
    each = [(i, j) for i in range(n) for j in range(n)]
    skew = [data.draw(draw.sampled_from([-1, -1, -1, 0, 1])) for _ in range(2)]
    by = [data.draw(draw.sampled_from([-1, -1, 1])) for _ in range(2)]
    axes = data.draw(draw.sampled_from(["cr", "cr", "cr", "rc", "cc"]))
    length = data.draw(draw.sampled_from([n, n, n, n - 1, n + 1]))
    looped, started, swapped = (data.draw(draw.booleans()) for _ in range(3))

    def f(a, b):
        a = lax.ppermute(a, ("r", "c"), [(i * n + j, i * n + (j + skew[0] * i) % n)
                                         for i, j in each])
        b = lax.ppermute(b, ("c", "r"), [(j * n + i, j * n + (i + skew[1] * j) % n)
                                         for i, j in each])
        out = a @ b if started else a * 0

        def turn(i, carry):
            out, a, b = carry
            out = out + (b @ a if swapped else a @ b)
            return (out, lax.ppermute(a, axes[0], ring(n, by[0])),
                    lax.ppermute(b, axes[1], ring(n, by[1])))
        return repeat(looped, length, turn, (out, a, b))[0]
    results(f, (normal(3 * n, 3 * n), normal(3 * n, 3 * n)), grid(n))


@given(draw.data())
@settings(max_examples=30)
def test_any_steps_on_a_grid_give_what_they_say(data):
    """Random devices that give, axes, and what is added: both executors agree."""
    n = data.draw(draw.sampled_from([2, 3]))
    slope, shift = data.draw(draw.sampled_from([1, 1, -1, 2])), data.draw(draw.integers(0, 2))
    names = data.draw(draw.sampled_from(["cr", "cr", "rc", "cc"]))
    length = data.draw(draw.sampled_from([n, n, n - 1, n + 1]))
    looped, more = (data.draw(draw.booleans()) for _ in range(2))
    step = summa(length, looped, lambda me, k: me == (slope * k + shift) % n, names)

    def f(a, b):
        return step(a, b) + (a if more else 0)
    results(f, (normal(3 * n, 3 * n), normal(3 * n, 3 * n)), grid(n))
