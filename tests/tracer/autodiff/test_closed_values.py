"""Rules of custom derivatives that close over traced values, under every transformation."""
from __future__ import annotations

import functools
import math

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.errors import UnexpectedTracerError
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

X, Z = 0.7, 1.3


def by_vjp(c, y):
    g = st.custom_vjp(lambda y: jnp.sin(y) * c)
    g.defvjp(lambda y: (jnp.sin(y) * c, (y, c)), lambda res, ct: (ct * jnp.cos(res[0]) * c * 2,))
    return g(y)


def by_jvp(c, y):
    g = st.custom_jvp(lambda y: jnp.sin(y) * c)
    g.defjvp(lambda p, t: (g(*p), 2 * c * jnp.cos(p[0]) * t[0]))
    return g(y)


def by_gradient(c, y):
    return st.custom_gradient(
        lambda y: (jnp.sin(y) * c, lambda ct: 2 * c * jnp.cos(y) * ct))(y)


def scanned(h):
    return lambda x, z: lax.scan(lambda c, _: (h(c, z), None), x, None, length=1)[0]


def mapped(h):
    mesh = st.make_mesh((2,), ("a",))
    return lambda x, z: st.shard_map(h, mesh=mesh, in_specs=(P(), P()), out_specs=P())(x, z)


def batched(h):
    return lambda x, z: st.vmap(h)(jnp.stack([x, x]), jnp.stack([z, z])).sum() / 2


AROUND = {
    "nothing": lambda h: h, "jit": st.jit, "scan": scanned, "remat": st.checkpoint,
    "cond": lambda h: lambda x, z: lax.cond(x > 0, h, lambda x, z: x * z, x, z),
    "shard_map": mapped, "vmap": batched, "jit of vmap": lambda h: st.jit(batched(h)),
    "vmap of scan": lambda h: batched(scanned(h)), "scan of vmap": lambda h: scanned(batched(h))}


def still(x, z):
    """Of an argument, what is stopped, and what is constant: nothing of it moves with x."""
    return z * z + lax.stop_gradient(x) + jnp.floor(x)


@rows("around", AROUND)
@rows("by", [by_vjp, by_jvp, by_gradient])
def test_rules_close_over_values_that_are_not_differentiated(by, around):
    expected = 3 * math.cos(1.5 * X) * (Z * Z + X)

    def inside(x, z):
        return AROUND[around](lambda x, z: by(still(x, z), x * 1.5))(x, z)

    def outside(x, z):
        return AROUND[around](lambda y, w: by(still(x, z), y * 1.5))(x, z)
    assert float(st.grad(inside)(X, Z)) == pytest.approx(expected, rel=1e-5)
    assert float(st.grad(st.jit(outside))(X, Z)) == pytest.approx(expected, rel=1e-5)
    found = st.vmap(st.grad(outside), (0, None))(jnp.array([X, X]), Z)
    assert found.tolist() == pytest.approx([expected] * 2, rel=1e-5)


def test_rules_that_close_over_what_is_differentiated_are_refused():
    for by in (by_vjp, by_jvp, by_gradient):
        for around in ("nothing", "vmap", "scan"):
            with pytest.raises(UnexpectedTracerError):
                st.grad(AROUND[around](lambda x, z, by=by: by(jnp.sin(x), x * 1.5)))(X, Z)


@pytest.mark.parametrize("around", AROUND)
def test_what_rules_close_over_moves_nothing_where_their_arguments_do_not_move(around):
    def by(c, y):
        g = st.custom_vjp(jnp.sin)
        g.defvjp(lambda y: (jnp.sin(y) * c, y), lambda y, ct: (ct * c * jnp.cos(y),))
        return g(y)
    assert float(st.grad(AROUND[around](lambda x, z: by(z, x * 1.5)), 1)(X, Z)) == 0


def test_rules_find_values_in_methods_containers_and_partial_functions():
    class Scaled:
        def __init__(self, c):
            self.parts = {"c": [c]}

        def fwd(self, more, y):
            return jnp.sin(y), (y, self.parts["c"][0] + more)

        def bwd(self, res, ct):
            return (ct * res[1] * self.parts["c"][0],)

    def f(x, z):
        s, g = Scaled(z * 1), st.custom_vjp(lambda y: jnp.sin(y))
        g.defvjp(functools.partial(s.fwd, z * 2), s.bwd)
        return g(x)
    for g in (f, batched(f), scanned(f), st.jit(f)):
        assert float(st.grad(g)(X, 2.0)) == (2 + 4) * 2
