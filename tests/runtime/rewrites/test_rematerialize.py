"""What is cheap to compute is computed where it is read, and results stay what they are."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.runtime.plans import blocked
from shardtrace.runtime.rewrites.saved_values import choose, held_bytes
from shardtrace.runtime.simulation import scanning
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...executors import agree

RNG = np.random.default_rng(0)
MESH = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def normal(*shape, spec=()):
    return st.device_put(RNG.normal(size=shape).astype(np.float32) / 8, P(*spec))


both = functools.partial(agree, rtol=1e-4, atol=1e-3)


def gelu_layers(w, x):
    for _ in range(3):
        x = st.nn.gelu(x @ w)
    return (x ** 2).sum()


def scanned(w, x):
    def body(x, w):
        m = x - x.mean(-1, keepdims=True)
        n = m / jnp.sqrt((m * m).mean(-1, keepdims=True) + 1e-5)
        return x + st.nn.gelu(n @ w), n.sum()
    x, sums = st.lax.scan(body, x, w)
    return (x ** 2).sum() + sums.sum()


def recurrence(w, xs):
    def cell(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h
    return (st.lax.scan(cell, jnp.zeros_like(xs[0]), xs)[1] ** 2).sum()


def backwards(w, xs):
    def cell(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h
    last, hs = st.lax.scan(cell, jnp.zeros_like(xs[0]), xs, reverse=True)
    return (hs ** 2).sum() + last.sum()


CASES = {
    "layers": (gelu_layers, lambda: (normal(128, 128), normal(1024, 128, spec=("x",)))),
    "scanned": (scanned, lambda: (normal(8, 64, 64), normal(512, 64, spec=("x",)))),
    "recurrence": (recurrence, lambda: (normal(64, 64), normal(16, 256, 64, spec=(None, "y")))),
    "backwards": (backwards, lambda: (normal(64, 64), normal(16, 256, 64, spec=(None, "y")))),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_devices_alone(name):
    f, arguments = CASES[name]
    with st.set_mesh(MESH):
        both(st.value_and_grad(f, (0, 1)), *arguments())


def test_what_is_saved_is_what_the_rest_follows_from_cheaply():
    def f(x):
        t = jnp.tanh(x)
        return t, 1 - t, (1 - t) * (1 + t), 0.5 * (1 + t) * x
    program = st.make_jaxpr(f)(np.ones(256, np.float32))
    made = {v: e for e in program.eqns for v in e.outvars}
    t, *others = program.outvars
    (x,) = program.invars

    def price(v):
        return held_bytes(v.aval)
    recomputed = choose([x, *others], made, price, 1)
    assert set(others) <= recomputed and recomputed.isdisjoint((t, x))
    # Where the operand is there anyway the tanh still is not computed twice.
    again = choose(others, made, lambda v: 0 if v is x else price(v), 1)
    assert set(others) <= again and t not in again
    # What would win too little is left alone, also beside what would be computed again.
    assert not choose(others, made, price, 1)
    assert not choose(others, made, price, 4 * price(t))


def stacked(monkeypatch):
    """The shapes, from now on, of what scans make to stack matrices in."""
    stacks = []
    original = scanning.empty

    def noted(shape, dtype):
        if len(shape) > 2:
            stacks.append(shape)
        return original(shape, dtype)
    monkeypatch.setattr(scanning, "empty", noted)
    return stacks


def test_a_scan_does_not_stack_what_its_derivative_can_compute(monkeypatch):
    stacks = stacked(monkeypatch)
    with st.set_mesh(MESH):
        w, x = CASES["scanned"][1]()
        st.jit(st.grad(scanned, (0, 1)))(w, x)
    # Of rows: what is left of them without their mean, their norm, operand and tanh of the
    # gelu. And the gradient of the weights.
    assert sorted(stacks) == [(8, 64, 64), (8, 512, 1), *[(8, 512, 64)] * 3]


def test_a_carry_that_is_stacked_before_and_after_is_one_array(monkeypatch):
    stacks = stacked(monkeypatch)
    for f in (recurrence, backwards):
        with st.set_mesh(MESH):
            w, xs = CASES["recurrence"][1]()
            st.jit(st.grad(f))(w, xs)
        assert stacks == [(17, 256, 64)]
        stacks.clear()


def test_a_group_writes_over_an_operand_that_nobody_else_reads(monkeypatch):
    made = []
    original = blocked.empty

    def noted(shape, dtype):
        made.append(shape)
        return original(shape, dtype)
    monkeypatch.setattr(blocked, "empty", noted)
    x, w = (RNG.normal(size=s).astype(np.float32) for s in ((1024, 512), (512, 512)))

    def over(x, w):
        return jnp.maximum(x @ w, 0.0) - 1.0

    def twice(x, w):
        y = x @ w
        return jnp.maximum(y, 0.0) - 1.0, y

    def later(x, w):                    # the first step that writes is not the last that reads
        y = x @ w
        return jnp.tanh(y) * 2.0 + (y - 1.0)
    for f, new in ((over, 0), (twice, 1)):
        made.clear()
        got = st.jit(f)(x, w)
        y = x @ w
        np.testing.assert_allclose(st.tree.leaves(got)[0], np.maximum(y, 0) - 1, rtol=1e-5,
                                   atol=1e-4)
        assert made.count((1024, 512)) == new

    def repeated(x, w):                 # what is repeated along the rows is smaller than the result
        y = x @ w
        return x - (y + 1.0).sum(-1, keepdims=True) * 0.5, y.reshape(2, 512, 512) + 1.0
    y = x @ w
    a, b = st.jit(repeated)(x, w)
    np.testing.assert_allclose(a, x - (y + 1).sum(-1, keepdims=True) * 0.5, rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(b, y.reshape(2, 512, 512) + 1, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(st.jit(later)(x, w), np.tanh(y) * 2 + y - 1, rtol=1e-5, atol=1e-4)
