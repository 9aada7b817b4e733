"""Scalars of loops: computed for all iterations at once."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.kernels.dynamic_slices import part_taken, part_updated
from shardtrace.runtime.plans import plan
from shardtrace.runtime.rewrites.pipeline import run_execution_passes
from shardtrace.sharding import PartitionSpec as P

from ...executors import forget_plans

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 5)).astype(np.float32)


def rows(x):
    def step(i, c):
        x, s = c
        row = x[i]
        return x.at[i].set(jnp.tanh(row + s)), s + row
    return lax.fori_loop(2, len(x), step, (x, x[0]))


def cycles(x):
    """A counter that is no multiple, another one that is read, and one that nobody reads."""
    def body(c, _):
        i, k, n, total = c
        part = lax.dynamic_slice(x, (i * 3, 0), (3, x.shape[1]))
        return ((i + 1) % 4, k + 2, n + 1, total + part.sum(0) * k), k % 3
    return lax.scan(body, (0, jnp.int32(5), jnp.uint8(250), x[0]), None, length=9)


def items(x):
    """Items that are scalars, backwards, of which one goes to a result."""
    def body(c, ij):
        i, j = ij
        return lax.dynamic_update_slice(c, x[i][None] * j, (len(x) - 1 - i, 0)), (i, i * 2 > 5)
    order = jnp.arange(len(x))
    return lax.scan(body, x * 0, (order, order.astype(jnp.float32)), reverse=True)


def places(x):
    """Where rows are read is a result, too."""
    def body(c, i):
        k = (i * 2).astype(jnp.uint32)
        return c * lax.dynamic_index_in_dim(x, k, keepdims=False), k
    return lax.scan(body, x[0], jnp.arange(6))


def branches(x):
    return lax.fori_loop(0, 10, lambda i, x: lax.cond(
        (i % 3 == 1) | (i > 7), lambda x: x * 0.5, lambda x: x + i, x), x)


def until(x):
    return lax.while_loop(lambda c: (c[1] < 7) & (c[0].sum() < 1e9),
                          lambda c: (c[0] + jnp.where(c[1] % 2 == 0, 1, -2), c[1] + 1), (x, 0))


def small_numbers(x):
    """Counters that wrap around."""
    def body(c, _):
        i, j, x = c
        return (i + jnp.int8(100), jnp.maximum(j * jnp.uint8(3), 7), x + i), (i, j, i < j)
    return lax.scan(body, (jnp.int8(0), jnp.uint8(1), x), None, length=8)


def places_of_devices(x):
    """Where each device reads and writes, in one dimension and in two, also outside; and what is
    counted with, as a result."""
    mesh = st.make_mesh((4,), ("d",))

    def body(x):
        me = lax.axis_index("d")

        def step(c, i):
            at = (me * 2 - i) % 7
            row = lax.dynamic_slice(c, (at, 0), (1, c.shape[1]))
            part = lax.dynamic_slice(c, (at - 3, i - me), (2, 3))
            c = lax.dynamic_update_slice(c, row * 0.5 + part.sum(), (me - at, 0))
            c = lax.dynamic_update_slice(c, part, (i * 2 - me, at))
            return c, (at * i, jnp.where(at > i, i, me))
        return st.tree.map(lambda y: y[None], lax.scan(step, x, jnp.arange(9)))
    return st.shard_map(body, mesh=mesh, in_specs=P(), out_specs=P("d"), check_vma=False)(x)


@pytest.mark.parametrize("f", [rows, cycles, items, places, branches, until,
                               small_numbers, places_of_devices])
def test_written_loops_give_what_followed_ones_give(f, monkeypatch):
    monkeypatch.setattr(plan, "FEW", 10**6)
    followed = st.tree.leaves(st.jit(f)(X))
    forget_plans()
    monkeypatch.setattr(plan, "FEW", 0)
    g = st.jit(f)
    for _ in range(2):
        for a, b in zip(followed, st.tree.leaves(g(X)), strict=True):
            assert a.aval == b.aval
            np.testing.assert_array_equal(a, b)


def test_places_of_devices_are_those_of_each_device_alone():
    def place(i, n, size):
        return min(max(0, i + n if i < 0 else i), n - size)
    got = st.jit(places_of_devices)(X)
    c, (at, chosen) = got
    for me in range(4):
        want = X.copy()
        for i in range(9):
            k = (me * 2 - i) % 7
            row = want[k].copy()
            r, s = place(k - 3, 12, 2), place(i - me, 5, 3)
            part = want[r:r + 2, s:s + 3].copy()
            want[place(me - k, 12, 1)] = row * 0.5 + part.sum()
            r, s = place(i * 2 - me, 12, 2), place(k, 5, 3)
            want[r:r + 2, s:s + 3] = part
            assert at[me, i] == k * i and chosen[me, i] == (i if k > i else me)
        np.testing.assert_allclose(c[me], want, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64,
                                   np.uint64])
def test_places_of_devices_may_be_of_any_integer_dtype(dtype):
    x = np.arange(2 * 300 * 2.0).reshape(2, 300, 2)
    shapes, starts = (x.shape, (2,), (1,)), (np.array([3, 100], dtype), np.zeros(1, dtype))
    taken = part_taken(1, shapes, [x.dtype] * 3, {"slice_sizes": (1, 2)})
    want = np.stack([x[0, 3:4], x[1, 100:101]])
    np.testing.assert_array_equal(taken(x, *starts), want)
    update = part_updated(1, (shapes[0], (2, 1, 2), *shapes[1:]), [x.dtype] * 4, {})
    changed = x.copy()
    changed[0, 3], changed[1, 100] = -1, -1
    np.testing.assert_array_equal(update(x, -np.ones((2, 1, 2)), *starts), changed)


def test_rows_are_read_and_written_where_they_are():
    want, s = X.copy(), X[0]
    for i in range(2, len(X)):
        row = want[i].copy()
        want[i], s = np.tanh(row + s), s + row
    given = X.copy()
    for _ in range(4):
        got = st.jit(rows)(given)
        np.testing.assert_allclose(got[0], want, rtol=1e-6)
        np.testing.assert_allclose(got[1], s, rtol=1e-5)
    np.testing.assert_array_equal(given, X)


def test_what_is_computed_of_counters_stands_before_the_scan():
    def f(x):
        return lax.fori_loop(0, 12, lambda i, s: s + x[(i * 7) % 12], x[0])
    program = run_execution_passes(st.jit(f).lower(X).compile().program)
    (scan,) = [e for e in program.eqns if e.op.name == "scan"]
    body = scan.params["jaxpr"]
    assert [e.op.name for e in body.eqns] == ["dynamic_slice", "squeeze", "add"]
    assert scan.params["num_carry"] == 1 and body.invars[-1].aval.shape == ()


def test_choices_between_numbers_are_made_for_all_iterations():
    """Ops that take no number beside an array, in which literals stand for operands."""
    def body(c, i):
        chosen = jnp.where(i % 3 == 0, 2.0, jnp.where(i > 4, i * 0.5, -1.0))
        bounded = lax.clamp(1, i, 5) + lax.clamp(i, 3, i + 2)
        return c + chosen * bounded, (chosen, bounded)

    total, (chosen, bounded) = st.jit(lambda: lax.scan(body, jnp.float32(0), jnp.arange(9)))()
    i = np.arange(9)
    wanted = np.where(i % 3 == 0, 2.0, np.where(i > 4, i * 0.5, -1.0))
    limits = np.clip(i, 1, 5) + np.clip(3, i, i + 2)
    np.testing.assert_array_equal(chosen, wanted)
    np.testing.assert_array_equal(bounded, limits)
    np.testing.assert_allclose(total, (wanted * limits).sum())
