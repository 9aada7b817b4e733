"""Rings written by hand, in loops and step by step: they run as they are written.

Products whose blocks travel, collectives made of exchanges between neighbours, attention to keys
that go round, Cannon's and SUMMA products: each beside what it computes, in plain numpy.
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

N = 4
RNG = np.random.default_rng(0)
EXECUTORS = ("simulated", "per_device")


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def mapped(f: Any, specs: Any, out: Any, grid: bool = False) -> Any:
    mesh = st.make_mesh((2, 2), ("r", "c")) if grid else st.make_mesh((N, 2), ("x", "y"))
    return st.shard_map(lambda *xs: f(*xs), mesh=mesh, in_specs=specs, out_specs=out)


def both(f: Any, args: Any, specs: Any = P("x"), out: Any = P("x"), grid: bool = False,
         exact: bool = False) -> Any:
    """What f gives for each device, in the simulated executor; the other one gives the same."""
    found = []
    for executor in EXECUTORS:
        with st.config.override(shardtrace_engine=executor):
            jitted = st.jit(mapped(f, specs, out, grid))
            jitted(*args)
            found.append([np.asarray(x) for x in st.tree.leaves(jitted(*args))])
    for a, b in zip(*found, strict=True):
        if exact or a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a.astype(np.float32), b.astype(np.float32), rtol=2e-5,
                                       atol=2e-5)
    return found[0] if len(found[0]) > 1 else found[0][0]


def close(got: Any, want: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def sent(x: Any, by: int = 1, axis: str = "x", n: int = N) -> Any:
    return lax.ppermute(x, axis, [(i, (i + by) % n) for i in range(n)])


def varying(x: Any, axes: Any = "x") -> Any:
    return lax.pcast(x, axes, to="varying")


def repeat(looped: bool, length: int, turn: Any, carry: Any) -> Any:
    if looped:
        return lax.fori_loop(0, length, turn, carry)
    for i in range(length):
        carry = turn(i, carry)
    return carry


# -- products whose blocks travel ------------------------------------------------------------------

def gathered_rows(x, w, looped=True):
    """The rows of a product, while blocks of rows go round."""
    me, rows = lax.axis_index("x"), x.shape[0]

    def turn(i, carry):
        x, out = carry
        return sent(x, -1), lax.dynamic_update_slice(out, x @ w, ((me + i) % N * rows, 0))
    start = x, varying(jnp.zeros((N * rows, w.shape[1]), x.dtype))
    return repeat(looped, N, turn, start)[1]


def gathered_columns(x, w):
    """The columns of a product, its second operand going round; scanned over the steps."""
    me, columns = lax.axis_index("x"), w.shape[1]

    def turn(carry, i):
        w, out = carry
        out = lax.dynamic_update_slice(out, x @ w, (0, (me - i) % N * columns))
        return (sent(w), out), None
    start = w, varying(jnp.zeros((x.shape[0], N * columns), x.dtype))
    return lax.scan(turn, start, jnp.arange(N))[0][1]


def contracted(x, w, looped=True):
    """Each device's columns with the rows that come by; the last product outside of the loop."""
    me, rows = lax.axis_index("x"), w.shape[0]

    def part(i, w):
        return lax.dynamic_slice_in_dim(x, (me - i) % N * rows, rows, 1) @ w

    def turn(i, carry):
        w, out = carry
        return sent(w), out + part(i, w)
    start = w, varying(jnp.zeros((x.shape[0], w.shape[1]), x.dtype))
    w, out = repeat(looped, N - 1, turn, start)
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


def scattered(x, w, looped=True):
    """A sum goes round, and each device adds its product for the one that it is meant for."""
    me, rows = lax.axis_index("x"), x.shape[0] // N

    def turn(i, total):
        part = lax.dynamic_slice_in_dim(x, (me - i - 1) % N * rows, rows, 0)
        return sent(total) + part @ w
    return repeat(looped, N, turn, varying(jnp.zeros((rows, w.shape[1]), x.dtype)))


PRODUCTS = {
    "gathered rows": (gathered_rows, (P("x"), P(None, "x")), P(None, "x")),
    "gathered rows, step by step": (
        functools.partial(gathered_rows, looped=False), (P("x"), P(None, "x")), P(None, "x")),
    "gathered columns": (gathered_columns, (P("x"), P(None, "x")), P("x")),
    "contracted": (contracted, (P("x"), P("x")), P("x")),
    "contracted, step by step": (
        functools.partial(contracted, looped=False), (P("x"), P("x")), P("x")),
    "contracted both ways": (contracted_both_ways, (P("x"), P("x")), P("x")),
    "scattered": (scattered, (P(None, "x"), P("x")), P("x")),
    "scattered, step by step": (
        functools.partial(scattered, looped=False), (P(None, "x"), P("x")), P("x")),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_ring_of_products_is_a_product(name):
    f, specs, out = PRODUCTS[name]
    x, w, c = normal(16, 24), normal(24, 32), normal(16, 32)
    close(both(f, (x, w), specs, out), x @ w)
    g = mapped(f, specs, out)
    dx, dw = st.jit(st.grad(lambda x, w: (g(x, w) * c).sum(), argnums=(0, 1)))(x, w)
    close(dx, c @ w.T)
    close(dw, x.T @ c)


# -- collectives made of exchanges between neighbours ----------------------------------------------

def all_reduce(x, looped=True, form="slice", by=1):
    """Rows are summed up around the ring, and then the sums go round."""
    me = lax.axis_index("x") * by

    def row(x, i):
        return x[i] if form == "index" else lax.dynamic_slice_in_dim(x, i, 1, 0)

    def written(x, y, i):
        return x.at[i].set(y) if form == "index" else lax.dynamic_update_slice_in_dim(x, y, i, 0)

    def plus(x, y, i):
        return x.at[i].add(y) if form == "index" else written(x, row(x, i) + y, i)
    x = repeat(looped, N - 1, lambda i, x: plus(
        x, sent(row(x, (me - i) % N), by), (me - i - 1) % N), x)
    return repeat(looped, N - 1, lambda i, x: written(
        x, sent(row(x, (me + 1 - i) % N), by), (me - i) % N), x)


def totals(x):
    return np.concatenate([x.reshape(N, -1, *x.shape[1:]).sum(0, x.dtype)] * N)


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize("form", ["slice", "index"])
@pytest.mark.parametrize("looped", [False, True])
def test_an_all_reduce_by_chunks(looped, form, by):
    x = normal(N * N, 6)
    f = functools.partial(all_reduce, looped=looped, form=form, by=by)
    close(both(f, (x,)), totals(x))
    x[1, 2], x[4, 0], x[8, 0], x[5, 5] = np.nan, np.inf, -np.inf, np.inf
    with np.errstate(invalid="ignore"):
        close(both(f, (x,)), totals(x))
    ints = RNG.integers(-2 ** 31, 2 ** 31, (16, 6)).astype(np.int32)
    np.testing.assert_array_equal(both(f, (ints,)), totals(ints))


def test_gradient_of_a_ring_all_reduce_is_the_total():
    x, c = normal(16, 6), normal(16, 6)
    g = mapped(all_reduce, P("x"), P("x"))
    close(st.jit(st.grad(lambda x: (g(x) * c).sum()))(x), totals(c))


def in_turn(x):
    """The sum of all blocks, each device beginning with its own."""
    return lax.fori_loop(0, N - 1, lambda i, c: (sent(c[0]), c[1] + sent(c[0])), (x, x))[1]


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_sums_are_added_in_the_order_that_is_written(dtype):
    """Device d adds the blocks of d, d - 1, d - 2, ... and rounds each time: to the last bit."""
    x = (normal(64, 6) * 10.0 ** RNG.integers(-3, 4, (64, 6))).astype(dtype)
    blocks = np.split(x, N)
    want = []
    for d in range(N):
        total = blocks[d]
        for i in range(1, N):
            total = (total + blocks[d - i]).astype(dtype)
        want.append(total)
    np.testing.assert_array_equal(both(in_turn, (x,), exact=True), np.concatenate(want))


def test_rings_along_one_axis_after_the_other():
    def f(x):
        total = x
        for axis in "r", "c":
            x = sent(total, axis=axis, n=2)
            total = total + x
        return total
    x = normal(8, 12)
    want = np.tile(x.reshape(2, 4, 2, 6).sum((0, 2)), (2, 2))
    close(both(f, (x,), P("r", "c"), P("r", "c"), grid=True), want)


def test_a_callback_sees_the_running_value():
    """What a ring has added up so far is what a callback is given, on every device."""
    seen: dict[str, list[np.ndarray]] = {}

    def f(x, into):
        def turn(i, carry):
            x, total = carry
            x = sent(x)
            total = total + x
            st.debug.callback(lambda v: into.append(np.asarray(v)), total.sum())
            return x, total
        return lax.fori_loop(0, N - 1, turn, (x, x))[1]
    x = np.arange(64, dtype=np.float32).reshape(16, 4)
    for executor in EXECUTORS:
        into = seen.setdefault(executor, [])
        with st.config.override(shardtrace_engine=executor):
            close(st.jit(mapped(functools.partial(f, into=into), P("x"), P("x")))(x), totals(x))
            st.effects_barrier()
    each = [b.sum() for b in np.split(x, N)]
    want = 2 * [float(sum(each[(d - k) % N] for k in range(i + 1)))     # of both devices along y
                for i in range(1, N) for d in range(N)]
    for found in seen.values():
        assert sorted(map(float, found)) == sorted(want)


def test_a_ring_that_only_some_devices_reach_is_a_deadlock():
    g = mapped(lambda x: lax.cond(lax.axis_index("x") > 0, in_turn, lambda x: x, x), P("x"), P("x"))
    with pytest.raises(RuntimeError, match="deadlock: `ppermute`"):
        st.jit(g)(normal(16, 8))


def test_a_profile_tells_of_the_exchanges_that_were_written():
    f, specs, out = PRODUCTS["gathered rows"]
    args = normal(16, 24), normal(24, 32)
    compiled = st.jit(mapped(f, specs, out)).lower(*args).compile()
    found = st.runtime.profile(compiled, *args, repeat=1)
    assert {k: v["runs"] for k, v in found.collectives().items()} == {"collective-permute": N}


# -- attention to keys and values that go round ----------------------------------------------------

def attention(form, step=1, causal=False, first=-1e30):
    def f(q, k, v):
        rows, me = q.shape[1], lax.axis_index("x")
        here = me * rows + jnp.arange(rows)
        m = varying(jnp.full((q.shape[0], rows, 1), first, jnp.float32))

        def fold(i, carry):
            m, total, o, k, v = carry
            s = jnp.einsum("hqd,hkd->hqk", q, k) * 0.5
            if causal:
                there = (me - step * i) % N * rows + jnp.arange(rows)
                s = jnp.where(here[:, None] >= there[None, :], s, -1e30)
            new = jnp.maximum(m, s.max(-1, keepdims=True))
            p, scale = jnp.exp(s - new), jnp.exp(m - new)
            if causal:
                p = jnp.where(s > -1e29, p, 0.0)
            return (new, total * scale + p.sum(-1, keepdims=True),
                    o * scale + jnp.einsum("hqk,hkd->hqd", p, v), sent(k, step), sent(v, step))

        carry = m, jnp.zeros_like(m), jnp.zeros_like(q), k, v
        if form == "scan":
            carry, _ = lax.scan(lambda c, i: (fold(i, c), None), carry, jnp.arange(N))
        else:
            carry = repeat(form == "loop", N, fold, carry)
        return carry[2] / carry[1]
    return f


@rows("form", ["loop", "scan", "steps"])
@rows("step", [1, -1, 3])
@rows("causal", [False, True])
def test_attention_to_keys_that_go_round(form, step, causal):
    q, k, v = (normal(2, 16, 8) for _ in range(3))
    s = q @ k.swapaxes(1, 2) * np.float32(0.5)
    if causal:
        s = np.where(np.tril(np.ones((16, 16), bool)), s, np.float32(-1e30))
    p = np.exp(s - s.max(-1, keepdims=True))
    want = p / p.sum(-1, keepdims=True) @ v
    spec = P(None, "x")
    for first in (-1e30,) if causal else (-1e30, -np.inf):
        close(both(attention(form, step, causal, first), (q, k, v), spec, spec), want)


# -- products on a grid of devices -----------------------------------------------------------------

def cannon(looped):
    """Blocks of rows and columns go round, from where each device's have one place in the sum."""
    def f(a, b):
        each = [(i, j) for i in range(2) for j in range(2)]
        a = lax.ppermute(a, ("r", "c"), [(i * 2 + j, i * 2 + (j - i) % 2) for i, j in each])
        b = lax.ppermute(b, ("r", "c"), [(i * 2 + j, (i - j) % 2 * 2 + j) for i, j in each])

        def turn(i, carry):
            out, a, b = carry
            return out + a @ b, sent(a, -1, "c", 2), sent(b, -1, "r", 2)
        out = varying(jnp.zeros((a.shape[0], b.shape[1]), a.dtype), ("r", "c"))
        return repeat(looped, 2, turn, (out, a, b))[0]
    return f


def summa(looped):
    """Step by step, one device of each row and one of each column give their blocks to all."""
    def f(a, b):
        r, c = lax.axis_index("r"), lax.axis_index("c")

        def turn(k, out):
            row = lax.psum(jnp.where(c == k, a, 0), "c")
            column = lax.psum(jnp.where(r == k, b, 0), "r")
            return out + row @ column
        return repeat(looped, 2, turn, varying(
            jnp.zeros((a.shape[0], b.shape[1]), a.dtype), ("r", "c")))
    return f


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("product", [cannon, summa])
def test_products_of_blocks_on_a_grid(product, looped):
    a, b, w = normal(8, 12), normal(12, 16), normal(8, 16)
    blocks = P("r", "c")
    close(both(product(looped), (a, b), blocks, blocks, grid=True), a @ b)
    g = mapped(product(looped), blocks, blocks, grid=True)
    da, db = st.jit(st.grad(lambda a, b: (g(a, b) * w).sum(), argnums=(0, 1)))(a, b)
    close(da, w @ b.T)
    close(db, a.T @ w)


# -- rings that are right, nearly right, and wrong -------------------------------------------------

@given(draw.data())
@settings(max_examples=60)
def test_both_executors_agree_on_any_ring(data):
    """Random directions, places, lengths, orders and callbacks."""
    by = data.draw(draw.sampled_from([1, -1, 2, 3]))
    slope, shift = (data.draw(draw.integers(-2, 3)) for _ in range(2))
    length = data.draw(draw.sampled_from([N, N, N, N - 1, N + 1]))
    kind = data.draw(draw.sampled_from(["put", "add", "send", "contract"]))
    looped, before, own, tells = (data.draw(draw.booleans()) for _ in range(4))
    product = data.draw(draw.sampled_from(["none", "left", "right"]))
    dtype = data.draw(draw.sampled_from([np.float32, np.float32, np.int32]))

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
            if tells:
                st.debug.callback(lambda v: None, out[0, 0])
            return (x if before else sent(x, by)), out
        shape = {"put": (16, 8), "contract": (8, 8)}.get(kind, (4, 8))
        start = varying(jnp.zeros(shape, x.dtype))
        if own:
            start = start + full[:shape[0]]
        return repeat(looped, length, turn, (x, start))[1]
    args = [(normal(*s) * (1 if dtype is np.float32 else 9)).astype(dtype)
            for s in ((16, 8), (8, 8), (64, 8))]
    both(f, args, (P("x"), P(), P("x")))
