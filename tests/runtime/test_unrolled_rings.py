"""Rings whose steps are written by a loop of Python are folded as loops of the program are."""
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
from shardtrace.runtime.rewrites.lean import lean_program
from shardtrace.sharding import PartitionSpec as P

N, ROWS, WIDTH = 4, 16, 6
MESH = st.make_mesh((N, 2), ("x", "y"))


def up(x, step=1):
    return lax.ppermute(x, "x", [(i, (i + step) % N) for i in range(N)])


def sends(flat):
    return any([e.op.name == "ppermute" or e.op.name == "scan" and sends(
        lean_program(e.params["jaxpr"])) for e in flat.eqns])


def results(f, args, specs=P("x"), out=P("x")):
    """What both executors give, and whether the simulated one sends."""
    found, flat = executed.results(f, args, MESH, specs, out, 1e-4)
    return found, sends(flat)


def attended(q, k, v, sent_in_the_end=False, causal=False):
    """Attention to keys and values that go round; `sent_in_the_end`: these as well."""
    me, here = lax.axis_index("x"), jnp.arange(q.shape[0])
    m = lax.pcast(jnp.full((q.shape[0], 1), -1e30, jnp.float32), "x", to="varying")
    total, out = 0., jnp.zeros_like(v)
    for i in range(N):
        s = q @ k.T
        if causal:
            there = (me - i) % N * len(here) + here
            s = jnp.where((me * len(here) + here)[:, None] >= there, s, -1e30)
        new = jnp.maximum(m, s.max(-1, keepdims=True))
        p, scale = jnp.exp(s - new), jnp.exp(m - new)
        m, total, out = new, total * scale + p.sum(-1, keepdims=True), out * scale + p @ v
        if i < N - 1 or sent_in_the_end:
            k, v = up(k), up(v)
    return (out / total, k) if sent_in_the_end else out / total


def plain(q, k, v, causal=False):
    s = q @ k.T
    if causal:
        s = np.where(np.tril(np.ones(s.shape, bool)), s, -1e30)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("causal", [False, True])
def test_the_last_step_sends_nothing(causal):
    args = [normal(ROWS, WIDTH) for _ in range(3)]
    (got,), travels = results(lambda *xs: attended(*xs, causal=causal), args)
    np.testing.assert_allclose(got, plain(*args, causal), rtol=2e-5, atol=1e-5)
    assert not travels


def test_blocks_that_have_come_round_are_those_of_the_beginning():
    args = [normal(ROWS, WIDTH) for _ in range(3)]
    (got, k), travels = results(lambda *xs: attended(*xs, True), args, out=(P("x"),) * 2)
    np.testing.assert_allclose(got, plain(*args), rtol=2e-5, atol=1e-5)
    np.testing.assert_array_equal(k, args[1])
    assert not travels


def test_the_first_blocks_may_be_given_as_well():
    args = [normal(ROWS, WIDTH) for _ in range(3)]
    (got, k), travels = results(lambda q, k, v: (attended(q, k, v), k), args, out=(P("x"),) * 2)
    np.testing.assert_allclose(got, plain(*args), rtol=2e-5, atol=1e-5)
    np.testing.assert_array_equal(k, args[1])
    assert not travels


def test_one_layer_after_the_other():
    def f(x, w):
        for i in range(3):
            x = x + attended(x, jnp.tanh(x @ w), x, causal=i == 1)
        return x
    x, w = normal(ROWS, WIDTH), normal(WIDTH, WIDTH)
    (got,), travels = results(f, (x, w), (P("x"), P()))
    for i in range(3):
        x = x + plain(x, np.tanh(x @ w), x, i == 1)
    np.testing.assert_allclose(got, x, rtol=2e-5, atol=1e-5)
    assert not travels


def test_in_layers_of_a_loop():
    def f(x, ws):
        return lax.scan(lambda x, w: (x + attended(x, x @ w, x), None), x, ws)[0]
    x, ws = normal(ROWS, WIDTH), normal(2, WIDTH, WIDTH)
    (got,), travels = results(f, (x, ws), (P("x"), P()))
    for w in ws:
        x = x + plain(x, x @ w, x)
    np.testing.assert_allclose(got, x, rtol=2e-5, atol=1e-5)
    assert not travels


def test_its_gradient_reads_all_steps():
    args = [normal(ROWS, WIDTH) for _ in range(3)]
    mapped = st.shard_map(attended, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    found = []
    for executor in "simulated", "per_device":
        st.config.update("shardtrace_executor", executor)
        try:
            found.append(st.jit(st.grad(lambda *xs: (mapped(*xs) ** 2).sum(), argnums=(0, 1, 2)))(
                *args))
        finally:
            st.config.update("shardtrace_executor", "simulated")
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def other(kind):
    def f(x, y):
        total, seen = jnp.zeros_like(x), []
        for i in range(N):
            s = jnp.tanh(x * y)
            if kind == "a step of its own" and i == 2:
                s = s * s
            if kind == "a number of its own":
                s = s * [1., 2., 4., 7.][i]
            if kind == "the step before the last one" and i > 1:
                s = s + seen[i - 2]
            total = total + s
            seen.append(s)
            y = up(y, 1 + (kind == "another way" and i == 1))
        if kind == "a step is read":
            return total, seen[1]
        if kind == "a block is read":
            return total, up(up(y))
        return total, total * 2
    return f


@pytest.mark.parametrize("kind", [
    "a step of its own", "a number of its own", "the step before the last one", "another way",
    "a step is read", "a block is read"])
def test_other_steps_are_left_as_they_are(kind):
    _, travels = results(other(kind), (normal(ROWS, WIDTH), normal(ROWS, WIDTH)), out=(P("x"),) * 2)
    assert travels


def test_a_profile_tells_of_the_exchanges_that_were_written():
    mapped = st.shard_map(attended, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    args = [normal(64 * N, 64) for _ in range(3)]
    found = st.runtime.profile(st.jit(mapped).lower(*args).compile(), *args, repeat=1)
    assert {k: v["runs"] for k, v in found.collectives().items()} == {
        "collective-permute": N - 1}         # of keys and values together


@given(draw.data())
@settings(max_examples=30)
def test_any_steps_give_what_they_say(data):
    """Random folds of random blocks in random orders: both executors agree."""
    by = data.draw(draw.sampled_from([1, 1, -1, 3, 2]))
    length = data.draw(draw.sampled_from([N, N, N, N - 1, N + 1]))
    parts = data.draw(draw.lists(draw.sampled_from(
        ["sum", "max", "min", "softmax", "count", "place", "late"]), min_size=1, max_size=3))
    first, early, both = (data.draw(draw.booleans()) for _ in range(3))

    def f(x, y, z):
        me = lax.axis_index("x")
        carries = [x if first else jnp.zeros_like(x) for _ in parts]
        m, previous = lax.pcast(jnp.full(x.shape, -1e30), "x", to="varying"), x
        for i in range(length):
            if early:
                old, y = y, up(y, by)
            else:
                old = y
            s = jnp.tanh(x * old) + (z if both else 0)
            new = jnp.maximum(m, s)
            p, scale = jnp.exp(s - new), jnp.exp(m - new)
            each = {
                "sum": lambda c, s=s: c + s, "max": lambda c, s=s: jnp.maximum(c, s),
                "min": lambda c, s=s: jnp.minimum(c, s * 2),
                "softmax": lambda c, p=p, scale=scale, old=old: c * scale + p * old,
                "count": lambda c, i=i, s=s: c + s * i,
                "place": lambda c, i=i, s=s: c + jnp.where((me - i) % N > 1, s, 0),
                "late": lambda c, was=previous: c + was}
            carries = [each[part](c) for part, c in zip(parts, carries, strict=True)]
            m, previous = new, s
            if not early:
                y = up(y, by)
            if both:
                z = up(z, by)
        return (*carries, m)
    args = [normal(ROWS, WIDTH) for _ in range(3)]
    results(f, args, out=(P("x"),) * (len(parts) + 1))
