"""Rings that are written by hand are executed as collectives, and give what they gave."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.driver.recent import forget_recent
from shardtrace.ir.context import config
from shardtrace.runtime.passing import rings
from shardtrace.runtime.passing.followed import Follower
from shardtrace.sharding import PartitionSpec as P

N = 4
MESH = st.make_mesh((N, 2), ("x", "y"))
RNG = np.random.default_rng(0)


def sent(x, by=1):
    return lax.ppermute(x, "x", [(i, (i + by) % N) for i in range(N)])


def blank(*shape, like):
    return lax.pcast(jnp.zeros(shape, like.dtype), "x", to="varying")


def run(monkeypatch, f, specs, out, *args):
    """What both executors give, and the names of the ops that the simulated one executes."""
    flats = []
    forget_recent()
    with monkeypatch.context() as patch:
        raise_rings = rings.raise_rings
        patch.setattr(rings, "raise_rings", lambda flat, inside: (
            raise_rings(flat, inside), flats.append(flat)))
        mapped = st.shard_map(f, mesh=MESH, in_specs=specs, out_specs=out)
        got = [np.asarray(r) for r in st.tree.leaves(st.jit(lambda *xs: mapped(*xs))(*args))]
    before = config.shardtrace_executor
    config.update("shardtrace_executor", "per_device")
    try:
        other = [np.asarray(r) for r in st.tree.leaves(st.jit(lambda *xs: mapped(*xs))(*args))]
    finally:
        config.update("shardtrace_executor", before)
    for a, b in zip(got, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    return got, {e.op.name for e in flats[-1].eqns}


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


# -- the rings of the field ------------------------------------------------------------------------

def gathered_rows(x, w):
    """The rows of a product, while blocks of rows go round."""
    me, rows = lax.axis_index("x"), x.shape[0]

    def turn(i, carry):
        x, out = carry
        return sent(x, -1), lax.dynamic_update_slice(out, x @ w, ((me + i) % N * rows, 0))
    return lax.fori_loop(0, N, turn, (x, blank(N * rows, w.shape[1], like=x)))[1]


def gathered_rows_step_by_step(x, w):
    me, rows = lax.axis_index("x"), x.shape[0]
    out = blank(N * rows, w.shape[1], like=x)
    for i in range(N):
        out = lax.dynamic_update_slice(out, x @ w, ((me - i) % N * rows, 0))
        if i < N - 1:
            x = sent(x)
    return out


def gathered_rows_backward(x, w):
    """From the last item to the first, each device's place told by an item, a counter, or both."""
    me, rows = lax.axis_index("x"), x.shape[0]

    def turn(carry, i):
        x, out, n, twice = carry
        at = jnp.where(i % 2 == 0, (me + N - 1 - i) % N, (me + n + twice - 2 * n) % N)
        out = lax.dynamic_update_slice(out, x @ w, (at * rows, 0))
        return (sent(x, -1), out, n + 1, 2 + twice), None
    return lax.scan(turn, (x, blank(N * rows, w.shape[1], like=x), 0, 0), jnp.arange(N),
                    reverse=True)[0][1]


def gathered_columns(x, w):
    """The columns of a product, its second operand going round; scanned over the steps."""
    me, columns = lax.axis_index("x"), w.shape[1]

    def turn(carry, i):
        w, out = carry
        out = lax.dynamic_update_slice(out, x @ w, (0, (me - i) % N * columns))
        return (sent(w), out), None
    start = w, blank(x.shape[0], N * columns, like=x)
    return lax.scan(turn, start, jnp.arange(N))[0][1]


def contracted(x, w):
    """Each device's columns with the rows that come by; the last product outside of the loop."""
    me, rows = lax.axis_index("x"), w.shape[0]

    def part(i, w):
        return lax.dynamic_slice_in_dim(x, (me - i) % N * rows, rows, 1) @ w

    def turn(i, carry):
        w, out = carry
        return sent(w), out + part(i, w)
    w, out = lax.fori_loop(0, N - 1, turn, (w, blank(x.shape[0], w.shape[1], like=x)))
    return out + part(N - 1, w)


def contracted_both_ways(x, w):
    """Halves of the rows go round in opposite directions."""
    me, half = lax.axis_index("x"), w.shape[0] // 2
    low, high = w[:half], w[half:]

    def part(i, k, w):
        return lax.dynamic_slice_in_dim(x, (2 * (i % N) + k) * half, half, 1) @ w
    out = part(me, 0, low) + part(me, 1, high)
    for i in range(1, N):
        low, high = sent(low), sent(high, -1)
        out = out + part(me - i, 0, low)
        out = out + part(me + i, 1, high)
    return out


def scattered(x, w):
    """A sum goes round, and each device adds its product for the one that it is meant for."""
    me, rows = lax.axis_index("x"), x.shape[0] // N

    def turn(i, total):
        rows_of = lax.dynamic_slice_in_dim(x, (me - i - 1) % N * rows, rows, 0)
        return sent(total) + rows_of @ w
    return lax.fori_loop(0, N, turn, blank(rows, w.shape[1], like=x))


def scattered_step_by_step(x, w):
    me, rows = lax.axis_index("x"), x.shape[0] // N

    def part(i):
        return lax.dynamic_slice_in_dim(x, (me - i - 1) % N * rows, rows, 0) @ w
    total = part(0)
    for i in range(1, N):
        total = sent(total) + part(i)
    return total


PRODUCTS = {
    gathered_rows: ((P("x"), P(None, "x")), P(None, "x")),
    gathered_rows_step_by_step: ((P("x"), P(None, "x")), P(None, "x")),
    gathered_rows_backward: ((P("x"), P(None, "x")), P(None, "x")),
    gathered_columns: ((P("x"), P(None, "x")), P("x")),
    contracted: ((P("x"), P("x")), P("x")),
    contracted_both_ways: ((P("x"), P("x")), P("x")),
    scattered: ((P(None, "x"), P("x")), P("x")),
    scattered_step_by_step: ((P(None, "x"), P("x")), P("x")),
}
COLLECTIVE = {scattered: {"reduce_scatter"}, scattered_step_by_step: {"reduce_scatter"}}
RING = {"ppermute", "scan", "dynamic_update_slice", "dynamic_slice"}


@pytest.mark.parametrize("f", PRODUCTS, ids=lambda f: f.__name__)
def test_a_ring_of_products_is_one_product(monkeypatch, f):
    specs, out = PRODUCTS[f]
    x, w = normal(16, 24), normal(24, 32)
    (got,), ops = run(monkeypatch, f, specs, out, x, w)
    np.testing.assert_allclose(got, x @ w, rtol=2e-5, atol=2e-5)
    assert ops & RING == set() and ops >= {"dot_general"} | COLLECTIVE.get(f, {"all_gather"})


def test_what_turns_count_is_computed_for_all_of_them_at_once(monkeypatch):
    seen = []
    follow = Follower.follow

    def noted(self, ways, at, inside):
        seen.append(sorted(eqn.op.name for eqn, _ in ways))
        follow(self, ways, at, inside)
    monkeypatch.setattr(Follower, "follow", noted)
    for f in gathered_rows, gathered_rows_backward:
        seen.clear()
        run(monkeypatch, f, *PRODUCTS[f], normal(16, 24), normal(24, 32))
        assert seen.count(["dot_general", "dynamic_update_slice", "ppermute"]) == N


@pytest.mark.parametrize("f", PRODUCTS, ids=lambda f: f.__name__)
def test_its_gradient_is_two_products(monkeypatch, f):
    specs, out = PRODUCTS[f]
    x, w, c = normal(16, 24), normal(24, 32), normal(16, 32)
    mapped = st.shard_map(f, mesh=MESH, in_specs=specs, out_specs=out)
    flats = []
    raise_rings = rings.raise_rings
    monkeypatch.setattr(rings, "raise_rings", lambda flat, inside: (
        raise_rings(flat, inside), flats.append(flat)))
    dx, dw = st.jit(st.grad(lambda x, w: (mapped(x, w) * c).sum(), argnums=(0, 1)))(x, w)
    np.testing.assert_allclose(dx, c @ w.T, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(dw, x.T @ c, rtol=2e-5, atol=2e-5)
    if f is not contracted_both_ways:
        assert {e.op.name for e in flats[-1].eqns}.isdisjoint(RING)


def all_of(x):
    """An all_gather."""
    me, rows, out = lax.axis_index("x"), x.shape[0], blank(N * x.shape[0], x.shape[1], like=x)
    for i in range(N):
        out = lax.dynamic_update_slice(out, x, ((me + i) % N * rows, 0))
        x = sent(x, -1)
    return out


def sum_of(x):
    """A psum."""
    return lax.fori_loop(0, N - 1, lambda i, c: (sent(c[0]), c[1] + sent(c[0])), (x, x))[1]


def share_of(x):
    """A reduce_scatter, of which every device keeps the block of its neighbour."""
    me, rows = lax.axis_index("x"), x.shape[0] // N
    total = lax.dynamic_slice_in_dim(x, me * rows, rows, 0)
    for i in range(1, N):
        total = sent(total) + lax.dynamic_slice_in_dim(x, (me - i) % N * rows, rows, 0)
    return total


@pytest.mark.parametrize("f, ops", [
    (all_of, {"all_gather", "copy"}), (sum_of, {"psum", "copy"}),
    (share_of, {"reduce_scatter", "ppermute", "copy"})], ids=lambda f: getattr(f, "__name__", ""))
def test_data_alone(monkeypatch, f, ops):
    x = normal(64, 6)
    (_,), found = run(monkeypatch, f, P("x"), P("x"), x)
    assert found == ops


def test_sums_of_short_floats_are_taken_one_by_one(monkeypatch):
    x = normal(64, 6).astype(jnp.bfloat16)
    (_,), ops = run(monkeypatch, sum_of, P("x"), P("x"), x)
    assert "scan" in ops


def test_a_ring_whose_parts_are_read_stays(monkeypatch):
    def f(x):
        total, seen = x, []
        for _ in range(N - 1):
            x = sent(x)
            total = total + x
            seen.append(jnp.tanh(total))
        return total, *seen
    _, ops = run(monkeypatch, f, P("x"), P("x"), normal(16, 8))
    assert "ppermute" in ops


def test_what_a_partial_ring_leaves_is_kept(monkeypatch):
    """One block is never written: what was in its place stays."""
    def f(x, out):
        me, rows = lax.axis_index("x"), x.shape[0]
        for i in range(N - 1):
            out = lax.dynamic_update_slice(out, x, ((me + i) % N * rows, 0))
            x = sent(x, -1)
        return out
    _, ops = run(monkeypatch, f, (P("x"), P("x")), P("x"), normal(16, 8), normal(64, 8))
    assert "dynamic_update_slice" in ops


def test_blocks_that_are_written_over_are_read_as_they_are_then(monkeypatch):
    def f(x, y):
        me = lax.axis_index("x")
        y = lax.dynamic_update_slice(y, x[:2], (me * 2, 0))
        total = lax.dynamic_slice(y, (me * 2, 0), (2, 8))
        for i in range(1, N):
            total = sent(total) + lax.dynamic_slice(y, ((me - i) % N * 2, 0), (2, 8))
        return total
    run(monkeypatch, f, (P("x"), P("x")), P("x"), normal(16, 8), normal(32, 8))


def test_in_the_body_of_a_loop(monkeypatch):
    """Layers that are scanned, each with its ring."""
    specs, out = PRODUCTS[gathered_rows_step_by_step]
    weights, x = normal(3, 16, 16) / 4, normal(16, 16)

    def f(x, ws):
        def layer(x, w):
            y = gathered_rows_step_by_step(x, w)
            return jnp.tanh(lax.all_to_all(y, "x", 0, 1, tiled=True)), None
        return lax.scan(layer, x, ws)[0]
    (got,), _ = run(monkeypatch, f, (specs[0], P(None, None, "x")), P("x"), x, weights)
    for w in weights:
        x = np.tanh(x @ w)
    np.testing.assert_allclose(got, x, rtol=2e-5, atol=2e-5)


def test_a_ring_that_only_some_devices_reach_is_still_a_deadlock():
    def f(x):
        me = lax.axis_index("x")
        return lax.cond(me > 0, sum_of, lambda x: x, x)
    mapped = st.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    with pytest.raises(RuntimeError, match="deadlock: `ppermute`"):
        st.jit(mapped)(normal(16, 8))


def test_a_profile_tells_of_the_exchanges_that_were_written():
    mapped = st.shard_map(gathered_rows, mesh=MESH, in_specs=PRODUCTS[gathered_rows][0],
                          out_specs=P(None, "x"))
    args = normal(16, 24), normal(24, 32)
    found = st.runtime.profile(st.jit(mapped).lower(*args).compile(), *args, repeat=1)
    assert {k: v["runs"] for k, v in found.collectives().items()} == {
        "collective-permute": N}


# -- rings that are right, nearly right, and wrong -------------------------------------------------

@given(draw.data())
@settings(max_examples=60)
def test_any_ring_gives_what_it_says(data):
    """Random directions, places, lengths and orders: both executors agree."""
    by = data.draw(draw.sampled_from([1, -1, 2, 3]))
    slope, shift = (data.draw(draw.integers(-2, 3)) for _ in range(2))
    length = data.draw(draw.sampled_from([N, N, N, N - 1, N + 1]))
    kind = data.draw(draw.sampled_from(["put", "add", "send", "contract"]))
    looped, before, own = (data.draw(draw.booleans()) for _ in range(3))
    product = data.draw(draw.sampled_from(["none", "left", "right"]))

    def f(x, w, full):
        me = lax.axis_index("x")

        def value(x):
            return {"none": x, "left": x @ w, "right": (w.T @ x.T).T}[product]

        def block(i, rows=4):
            return lax.dynamic_slice_in_dim(full, (slope * me + shift + i) % N * rows, rows, 0)

        def turn(i, carry):
            x, out = carry
            if before:
                x = sent(x, by)
            if kind == "put":
                out = lax.dynamic_update_slice(out, value(x), ((slope * me + shift + i) % N * 4, 0))
            elif kind == "add":
                out = out + value(x)
            elif kind == "send":
                out = sent(out, by) + value(block(i))
            else:
                out = out + block(i).T @ x
            return (x if before else sent(x, by)), out
        shape = {"put": (16, 8), "contract": (8, 8)}.get(kind, (4, 8))
        start = lax.pcast(jnp.zeros(shape, x.dtype), "x", to="varying")
        if own:
            start = start + full[:shape[0]]
        carry = x, start
        if looped:
            return lax.fori_loop(0, length, turn, carry)[1]
        for i in range(length):
            carry = turn(i, carry)
        return carry[1]
    with pytest.MonkeyPatch.context() as patch:
        run(patch, f, (P("x"), P(), P("x")), P("x"), normal(16, 8), normal(8, 8), normal(64, 8))
