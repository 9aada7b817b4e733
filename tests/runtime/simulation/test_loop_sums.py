"""Sums over devices that are taken after a loop: the loop holds one sum, not one part a device."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.runtime.simulation import control
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...executors import agree


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def mesh():
    return st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))


def put(mesh, x, *spec):
    return st.device_put(x, NamedSharding(mesh, P(*spec)))


def carried(monkeypatch):
    """The layouts of what scans carry and stack, as they are planned."""
    found = []
    original = control.scan_runner

    def noted(*operands):
        found.append([])
        run = original(*operands)

        def watched(*arrays):
            out = run(*arrays)
            found[-1] = [x.shape for x in out]
            return out
        return watched
    monkeypatch.setattr(control, "scan_runner", noted)
    return found


both = functools.partial(agree, rtol=2e-4, atol=1e-4)


def test_a_gradient_that_is_accumulated_is_one_array(mesh, monkeypatch):
    xs, w = put(mesh, data(5, 16, 6), None, "x"), put(mesh, data(6, 6, seed=1))

    def loss(w, xs):
        h, _ = lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros((16, 6)), xs)
        return jnp.sum(h * h)
    shapes = carried(monkeypatch)
    st.jit(st.grad(loss))(w, xs)
    assert all(s in ((6, 6), (16, 6), (5, 16, 6), ()) for found in shapes for s in found), shapes
    monkeypatch.undo()
    both(st.grad(loss), w, xs)


def test_gradients_that_are_stacked_are_summed_one_by_one(mesh, monkeypatch):
    ws, x = put(mesh, data(3, 6, 6)), put(mesh, data(16, 6, seed=1), "x")

    def loss(ws, x):
        h, _ = lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)
        return jnp.sum(h * h)
    shapes = carried(monkeypatch)
    st.jit(st.grad(loss))(ws, x)
    assert (3, 6, 6) in shapes[-1], shapes
    assert not any(len(s) > 3 for found in shapes for s in found), shapes
    monkeypatch.undo()
    both(st.grad(loss), ws, x)


def test_a_sum_in_a_loop_in_a_loop(mesh):
    xs, w = put(mesh, data(2, 3, 16, 4), None, None, "x"), put(mesh, data(4, 4, seed=1))

    def loss(w, xs):
        def outer(h, part):
            return lax.scan(lambda h, x: (jnp.tanh(h @ w) * x, h.sum()), h, part)
        h, kept = lax.scan(outer, jnp.ones((16, 4)), xs)
        return jnp.sum(h) + jnp.sum(kept)
    both(st.value_and_grad(loss), w, xs)


@pytest.mark.parametrize("body", [
    lambda c, x: (c + x, x),                            # linear
    lambda c, x: (c * 2 + x, c),                        # the carry leaves each iteration
    lambda c, x: (c * c + x, x * 2),                    # not linear
    lambda c, x: (jnp.maximum(c, x), c + x),
    lambda c, x: (x, c),
    lambda c, x: (c + lax.psum(x, "x"), x)])
@pytest.mark.parametrize("init", [0.0, 1.5])
def test_every_body_gives_what_devices_alone_give(body, init):
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    x = put(mesh, data(16, 4) * np.float32(0.1), "x")

    def f(x):
        def local(x):
            start = lax.pcast(jnp.full((4,), init), "x", to="varying")
            c, ys = lax.scan(body, start, x)
            return lax.psum(c, "x"), lax.psum(ys, "x")
        return st.shard_map(local, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False)(x)
    both(f, x)


def test_what_differs_between_devices_afterwards_is_kept_apart():
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    x = put(mesh, data(16, 4), "x")

    def f(x):
        def local(x):
            start = lax.pcast(jnp.zeros(4), "x", to="varying")
            c, ys = lax.scan(lambda c, x: (c + x, c), start, x)
            return lax.psum(c, "x")[None] + c, ys
        return st.shard_map(local, mesh=mesh, in_specs=P("x"), out_specs=(P("x"), P("x")))(x)
    both(f, x)


def test_a_loop_that_devices_leave_at_different_times():
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    x = put(mesh, np.arange(8, dtype=np.float32), "x")

    def f(x):
        def local(x):
            def body(s):
                c, _ = lax.scan(lambda c, _: (c + x, None), s[1], None, length=2)
                return s[0] - 1, c
            _, c = lax.while_loop(lambda s: s[0].sum() > 0, body, (x, jnp.zeros_like(x)))
            return lax.psum(c, "x")
        return st.shard_map(local, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False)(x)
    both(f, x)
