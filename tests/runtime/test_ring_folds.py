"""Loops that fold what travels around a ring give what they say, on both executors."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.ops.collective import ppermute_p
from shardtrace.runtime.rewrites.flatten import every_equation
from shardtrace.runtime.rewrites.lean import lean_program
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

N, HEADS, ROWS, WIDTH = 4, 2, 16, 8
SPEC = P(None, "X")


@pytest.fixture
def mesh():
    mesh = st.make_mesh((N,), ("X",), axis_types=(AxisType.Explicit,))
    with st.set_mesh(mesh):
        yield mesh


def up(x, step=1):
    return lax.ppermute(x, "X", [(i, (i + step) % N) for i in range(N)])


def varying(x):
    return lax.pcast(x, "X", to="varying")


def repeat(form, fold, carry):
    if form == "fori_loop":
        return lax.fori_loop(0, N, fold, carry)
    for i in range(N):
        carry = fold(i, carry)
    return carry


def arrays(count, shape=(HEADS, ROWS, WIDTH)):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(count)]


def softmax(s):
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def attention(form, step=1, causal=False, first=-1e30, masked=-1e30):
    def f(q, k, v):
        rows, me = q.shape[1], lax.axis_index("X")
        here = me * rows + jnp.arange(rows)
        m = varying(jnp.full((HEADS, rows, 1), first, jnp.float32))

        def fold(i, carry):
            m, total, o, k, v = carry
            s = jnp.einsum("hqd,hkd->hqk", q, k) * 0.5
            if causal:
                there = (me - step * i) % N * rows + jnp.arange(rows)
                s = jnp.where(here[:, None] >= there[None, :], s, masked)
            new = jnp.maximum(m, s.max(-1, keepdims=True))
            p, scale = jnp.exp(s - new), jnp.exp(m - new)
            if causal:
                p = jnp.where(s > -1e29, p, 0.0)
            return (new, total * scale + p.sum(-1, keepdims=True),
                    o * scale + jnp.einsum("hqk,hkd->hqd", p, v), up(k, step), up(v, step))

        carry = m, jnp.zeros_like(m), jnp.zeros_like(q), k, v
        if form != "scan":
            carry = repeat(form, fold, carry)
        else:
            carry, _ = lax.scan(lambda c, i: (fold(i, c), None), carry, jnp.arange(N))
        return carry[2] / carry[1]
    return f


def results(f, args, mesh, specs=SPEC, out=SPEC):
    """Of both executors; and whether a loop is left in what the simulated one runs."""
    split = [st.device_put(a, NamedSharding(mesh, specs)) for a in args]
    jitted = st.jit(st.shard_map(f, mesh=mesh, in_specs=(specs,) * len(args), out_specs=out))
    flat = lean_program(jitted.lower(*split).compile().program)
    found = []
    for executor in ("simulated", "per_device"):
        st.config.update("shardtrace_executor", executor)
        try:
            found.append([np.asarray(x) for x in st.tree.leaves(jitted(*split))])
        finally:
            st.config.update("shardtrace_executor", "simulated")
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
    return found[0], any([e.op is ppermute_p for e in every_equation(flat.eqns)])


@pytest.mark.parametrize("form", ["fori_loop", "scan", "unrolled"])
@pytest.mark.parametrize("step", [1, -1, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_to_keys_that_travel_is_one_attention(mesh, form, step, causal):
    q, k, v = arrays(3)
    (got,), travels = results(attention(form, step, causal), (q, k, v), mesh)
    s = q @ k.swapaxes(1, 2) * np.float32(0.5)
    if causal:
        s = np.where(np.tril(np.ones((ROWS, ROWS), bool)), s, np.float32(-1e30))
    np.testing.assert_allclose(got, softmax(s) @ v, rtol=2e-5, atol=1e-5)
    assert not travels


@pytest.mark.parametrize("form", ["scan", "unrolled"])
def test_the_first_maximum_may_be_infinite(mesh, form):
    q, k, v = arrays(3)
    (got,), travels = results(attention(form, first=-np.inf), (q, k, v), mesh)
    np.testing.assert_allclose(got, softmax(q @ k.swapaxes(1, 2) / 2) @ v, rtol=2e-5, atol=1e-5)
    assert not travels


@pytest.mark.parametrize("form", ["fori_loop", "unrolled"])
@pytest.mark.parametrize(("first", "left"), [(-1e30, False), (-np.inf, True)])
def test_masks_are_infinite_where_the_first_maximum_is_not(mesh, first, left, form):
    q, k, v = arrays(3)
    f = attention(form, causal=True, first=first, masked=-np.inf)
    (got,), travels = results(f, (q, k, v), mesh)
    s = np.where(np.tril(np.ones((ROWS, ROWS), bool)), q @ k.swapaxes(1, 2) / 2, -np.inf)
    np.testing.assert_allclose(got, softmax(s) @ v, rtol=2e-5, atol=1e-5)
    assert travels is left


def test_a_block_that_is_masked_by_data_is_no_number_as_it_is_written(mesh):
    def f(q, k, bias):
        def fold(i, carry):
            m, total, k, bias = carry
            s = q @ k.mT + bias
            new = jnp.maximum(m, s.max(-1, keepdims=True))
            return (new, total * jnp.exp(m - new) + jnp.exp(s - new).sum(-1, keepdims=True),
                    up(k), up(bias))
        m = varying(jnp.full((HEADS, q.shape[1], 1), -np.inf, jnp.float32))
        return lax.fori_loop(0, N, fold, (m, jnp.zeros_like(m), k, bias))[1]
    q, k, bias = *arrays(2), np.zeros((HEADS, ROWS, ROWS // N), np.float32)
    bias[0, 5, 1], bias[1, 2] = -np.inf, -np.inf        # one element, and a row of a whole block
    (got,), travels = results(f, (q, k, bias), mesh)
    assert np.argwhere(np.isnan(got)).tolist() == [[1, 2, 0]]
    assert travels


@pytest.mark.parametrize("form", ["fori_loop", "unrolled"])
def test_the_first_values_count(mesh, form):
    def f(x, y):
        def fold(i, carry):
            m, total, largest, y = carry
            s = jnp.tanh(x * y.sum())
            new = jnp.maximum(m, s)
            return (new, total * jnp.exp(m - new) + jnp.exp(s - new) * y.sum(),
                    jnp.minimum(largest, y.min() + x), up(y))
        return repeat(form, fold, (x, x + 1, x, y))[:3]
    x, y = arrays(2, (1, ROWS))
    found, travels = results(f, (x, y), mesh, out=(SPEC,) * 3)
    m, total, least = x, x + 1, x
    for b in range(N):
        blocks = y.reshape(1, N, -1).take((np.arange(N) - b) % N, 1)
        sums = np.repeat(blocks.sum(-1), ROWS // N, 1)
        s = np.tanh(x * sums)
        new = np.maximum(m, s)
        total = total * np.exp(m - new) + np.exp(s - new) * sums
        m, least = new, np.minimum(least, x + np.repeat(blocks.min(-1), ROWS // N, 1))
    for got, expected in zip(found, (m, total, least), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4)
    assert not travels


def test_sums_over_pairs(mesh):
    def f(x, w):
        def fold(carry, i):
            force, far, y, u = carry
            d = y[None] - x[:, None]
            r = (d * d).sum(-1) + 0.1
            pull = u[None, :, :1] / r[..., None] * d
            return (force + pull.sum(1), far + pull * (i + 1), up(y), up(u)), None
        far = varying(jnp.zeros((x.shape[0], x.shape[0], x.shape[1])))
        carry, _ = lax.scan(fold, (jnp.zeros_like(x), far, x, w), jnp.arange(N))
        return carry[0], carry[1].sum(1), carry[2]
    x, w = arrays(2, (ROWS, 2))
    (force, _, y), travels = results(f, (x, w), mesh, P("X"), (P("X"),) * 3)
    d = x[None] - x[:, None]
    expected = (w[None, :, :1] / ((d * d).sum(-1) + np.float32(0.1))[..., None] * d).sum(1)
    np.testing.assert_allclose(force, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(y, x)
    assert not travels


def changed(kind, form):
    """A loop that is none of these folds, each in its own way."""
    def f(x, y):
        def fold(i, carry):
            m, total, y = carry
            s = x @ y.T
            new = jnp.maximum(m, s.max(-1, keepdims=True))
            p, scale = jnp.exp(s - new), jnp.exp(m - new)
            if kind == "alike":             # what is added does not travel
                return new, total + x.sum(-1, keepdims=True), up(y)
            if kind == "not scaled":
                return new, total + p.sum(-1, keepdims=True), up(y)
            if kind == "scaled twice":
                return new, total * scale * scale + p.sum(-1, keepdims=True), up(y)
            if kind == "squared":
                return new, total * scale + (p * p).sum(-1, keepdims=True), up(y)
            if kind == "over rows":
                return new, total * scale + p.sum(0, keepdims=True).T, up(y)
            if kind == "the maximum itself":
                return new, total + new, up(y)
            if kind == "what is sent changes":
                return new, total * scale + p.sum(-1, keepdims=True), up(y * 0.5)
            if kind == "not sent in the end":
                return new, total * scale + p.sum(-1, keepdims=True), y + up(y)
            return new, total * scale + p.sum(-1, keepdims=True), up(y, 2)      # visits few
        start = varying(jnp.full((x.shape[0], 1), -1e30, jnp.float32))
        m, total, _ = repeat(form, fold, (start, jnp.zeros_like(start), y))
        return m, total
    return f


@pytest.mark.parametrize("form", ["fori_loop", "unrolled"])
@pytest.mark.parametrize("kind", ["alike", "not scaled", "scaled twice", "squared", "over rows",
                                  "the maximum itself", "what is sent changes",
                                  "not sent in the end", "two further"])
def test_other_loops_are_left_as_they_are(mesh, kind, form):
    _, travels = results(changed(kind, form), arrays(2, (ROWS, WIDTH)), mesh, P("X"), (P("X"),) * 2)
    assert travels or (kind, form) == ("alike", "unrolled")     # what is added is no part of steps


@pytest.mark.parametrize("form", ["fori_loop", "unrolled"])
def test_what_is_added_twice_is_summed_for_each(mesh, form):
    def f(x, y):
        def fold(i, carry):
            a, b, y = carry
            s = jnp.tanh(x * y)
            return a + s, b + s * y, up(y)
        return repeat(form, fold, (jnp.zeros_like(x), x, y))[:2]
    x, y = arrays(2, (ROWS, WIDTH))
    (a, b), travels = results(f, (x, y), mesh, P("X"), (P("X"),) * 2)
    blocks = np.stack([np.roll(y, i * ROWS // N, 0) for i in range(N)])
    np.testing.assert_allclose(a, np.tanh(x * blocks).sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(b, x + (np.tanh(x * blocks) * blocks).sum(0), rtol=1e-4, atol=1e-5)
    assert not travels
