"""Written-out loops write their small arrays to memory that they keep: nobody may notice."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.runtime.loops import buffers as loop_buffers
from shardtrace.runtime.loops import source as loop_source
from shardtrace.runtime.plans import plan

RNG = np.random.default_rng(0)
X, Y, Z = (RNG.uniform(-1, 1, (16, 16)).astype(np.float32) for _ in range(3))
LENGTH = 11


def both_ways(f, *arguments):
    """The results of a loop that is followed call by call, and of one that is written out."""
    found = []
    few, fewest = plan.FEW, loop_buffers.FEWEST
    try:
        loop_buffers.FEWEST = 1
        for plan.FEW in (10**6, 0):
            st.clear_caches()
            g = st.jit(f)
            g(*arguments)
            found.append([np.array(x) for x in st.tree.leaves(g(*arguments))])
    finally:
        plan.FEW, loop_buffers.FEWEST = few, fewest
        st.clear_caches()
    return found


def written(monkeypatch, f, *arguments):
    """What the written-out loop decided of its memory."""
    found = []

    class Noted(loop_buffers.Buffers):
        def __init__(self, *args):
            super().__init__(*args)
            found.append(self)

    monkeypatch.setattr(loop_source, "Buffers", Noted)
    monkeypatch.setattr(plan, "FEW", 0)
    g = st.jit(f)
    for _ in range(3):
        g(*arguments)
    return found[-1]


def test_a_chain_is_written_over_what_is_carried(monkeypatch):
    buffers = written(monkeypatch, lambda x, y: lax.fori_loop(
        0, LENGTH, lambda i, x: jnp.maximum(x * y, 0.5 * y) - 0.25, x), X, Y)
    assert len(buffers.own) == 1 and not buffers.rooms
    assert len(buffers.into) == 3 and len({*buffers.into.values()}) == 1


def test_what_is_read_again_gets_other_memory(monkeypatch):
    """x is read after x * y: the two arrays take turns."""
    buffers = written(monkeypatch, lambda x, y: lax.scan(
        lambda x, _: (x * y + 1, (x * x).sum()), x, None, length=LENGTH), X, Y)
    assert len(buffers.own) == len(buffers.rooms) == len(buffers.moves) == 1


def test_memory_is_not_taken_for_a_few_iterations_nor_large_arrays(monkeypatch):
    def f(x):
        return lax.fori_loop(0, 7, lambda i, x: jnp.tanh(x) * x, x)
    noted = []
    monkeypatch.setattr(loop_source, "Buffers", lambda *args: noted.append(args))
    monkeypatch.setattr(plan, "FEW", 0)
    g = st.jit(f)
    for _ in range(3):
        g(X)
    assert not noted
    monkeypatch.undo()
    large = np.zeros((256, 512), np.float32)
    buffers = written(monkeypatch, lambda x: lax.fori_loop(
        0, LENGTH, lambda i, x: jnp.tanh(x) * x, x), large)
    assert not buffers.own and not buffers.rooms


def test_arguments_and_results_stay_as_they_are():
    """Neither the argument is written over, nor a result by the next call."""
    g = st.jit(lambda x, y: lax.fori_loop(0, 40, lambda i, c: (c[1], c[0] * 0.5 + c[1]), (x, y)))
    x, y = st.device_put(X), st.device_put(Y)
    first = g(x, y)
    kept = [np.array(a) for a in first]
    for _ in range(3):
        g(*first)
        g(y, x)
    for a, b in zip((x, y, *first), (X, Y, *kept), strict=True):
        np.testing.assert_array_equal(a, b)

def test_sums_are_added_up_in_the_order_in_which_arrays_lie():
    """Columns that lie in memory as rows: the same bits, however the loop runs."""
    def f(x, y):
        def body(c, _):
            a, b = c
            s = jnp.tanh(a * 0.5)
            return (s.T - s.sum(1, keepdims=True) * 0.1, b * 0.5 + b.sum(0)), s.sum(0)
        return lax.scan(body, (x.T, y), None, length=LENGTH)
    for arguments in ((X, Y), (np.asfortranarray(X), Y), (X, Y.T)):
        followed, written_out = both_ways(f, *arguments)
        for a, b in zip(followed, written_out, strict=True):
            np.testing.assert_array_equal(a, b)


def delayed(x, y):
    """What was carried two iterations ago."""
    return lax.fori_loop(0, LENGTH, lambda i, c: (c[1], c[2], c[0] * 0.5 + jnp.sin(c[2])),
                         (x, y, x))


def shared(x, y):
    """One result is carried twice, and one twice among the outputs."""
    def body(c, _):
        a, b = c
        s = a * 0.5 + b
        return (s, s), (s, a)
    return lax.scan(body, (x, y), None, length=LENGTH)


def shown(x, y):
    """Views of a result outlive it, in the carry and in the outputs."""
    def body(c, _):
        a, b = c
        s = jnp.tanh(a + b.T)
        return (s.T, s.reshape(4, 64).reshape(16, 16)), s[3]
    return lax.scan(body, (x, y), None, length=LENGTH)


def seen_later(x, y):
    """A view of a result is read after the last that reads the result itself."""
    def body(i, c):
        a, b = c
        s = jnp.tanh(a + b)
        t = s.reshape(4, 64)
        u = s * 0.5
        return t.reshape(16, 16) - u, (t + 1).reshape(16, 16)
    return lax.fori_loop(0, LENGTH, body, (x, y))


def branched(x, y):
    """A branch that gives back what it was given."""
    def body(i, c):
        a, b = c
        s = a * 0.9 + 0.1
        return lax.cond(i % 2 == 0, lambda s, b: (s, b), lambda s, b: (b * s, s), s, b)
    return lax.fori_loop(0, LENGTH, body, (x, y))


def nested(x, y):
    """A loop in a loop, which may give back what it was given."""
    def body(i, c):
        a, b = c
        s = a * b
        t = lax.fori_loop(0, i % 3, lambda _, t: t * 0.5 + s, s)
        return t + s, s - t * 0.5
    return lax.fori_loop(0, LENGTH, body, (x, y))


def until(x, y):
    return lax.while_loop(lambda c: (c[2] < 40) & (c[0].sum() < 1e6),
                          lambda c: (c[1] * 0.5 + c[0], c[0] * c[1], c[2] + 1), (x, y, 0))


def in_part(x, y):
    """A part of the carry is written, beside results that are computed."""
    def body(i, c):
        a, b = c
        row = a[i] + b[i]
        return a.at[i].set(row * 0.5), b * 0.5 + row
    return lax.fori_loop(0, LENGTH, body, (x, y))


@pytest.mark.parametrize("f", [delayed, shared, shown, seen_later, branched, nested, until,
                               in_part])
def test_written_loops_give_what_followed_ones_give(f):
    followed, written_out = both_ways(f, X, Y)
    for a, b in zip(followed, written_out, strict=True):
        np.testing.assert_array_equal(a, b)


STEPS = {
    "add": lambda p, q: p * 0.5 + q, "multiply": lambda p, q: jnp.sin(p * q),
    "largest": jnp.maximum, "tanh": lambda p, q: jnp.tanh(p), "turned": lambda p, q: p.T,
    "turned sum": lambda p, q: p.T - q, "view": lambda p, q: p.reshape(4, 64).reshape(16, 16),
    "product": lambda p, q: p @ q * 0.1, "chosen": lambda p, q: jnp.where(p > q, p, q * 0.5),
    "rows": lambda p, q: p - q.sum(1, keepdims=True) * 0.1,
    "placed": lambda p, q: lax.dynamic_update_slice(p, q[:2, :3], (1, 2)),
    "added in place": lambda p, q: p.at[3].add(q[2]),
    "branch": lambda p, q: lax.cond(p[0, 0] > 0, lambda: p, lambda: q * 0.5),
    "loop": lambda p, q: lax.fori_loop(0, 2, lambda i, t: t * 0.5 + q, p),
    "other": lambda p, q: q,
}


@settings(max_examples=60, deadline=None)
@given(steps=draw.lists(draw.tuples(draw.sampled_from([*STEPS]), draw.integers(0, 20),
                                    draw.integers(0, 20)), min_size=1, max_size=9),
       carried=draw.tuples(*[draw.integers(0, 6)] * 3), given_out=draw.lists(
           draw.integers(0, 6), max_size=2))
def test_random_loops_written_and_followed_agree(steps, carried, given_out):
    def body(c, _):
        values = list(c)
        for name, i, j in steps:
            values.append(STEPS[name](values[-1 - i % len(values)], values[-1 - j % len(values)]))
        last = values[::-1]
        return tuple([last[k % len(last)] for k in carried]), [
            last[k % len(last)] for k in given_out]

    followed, written_out = both_ways(
        lambda *c: lax.scan(body, c, None, length=LENGTH), X, Y, Z)
    assume(all(np.abs(a).max() < 1e30 for a in followed))
    for a, b in zip(followed, written_out, strict=True):
        # numpy adds up in another order what lies in another: the last bits may differ.
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-3 * max(1, np.abs(b).max()))
