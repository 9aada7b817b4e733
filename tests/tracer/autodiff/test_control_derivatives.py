"""Derivatives of scan, while, cond: against finite differences, and each other."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, tree_util
from shardtrace.sharding import AxisType, NamedSharding, reshard
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

RNG = np.random.default_rng(0)
A = RNG.normal(size=(3, 3)).astype(np.float32)
W = (RNG.normal(size=(4, 3, 3)) * 0.5).astype(np.float32)


def layers(a, w):
    c, ys = lax.scan(lambda c, t: (jnp.tanh(c @ t), c.sum()), a, w)
    return (c ** 2).sum() + (ys ** 2).sum()


def closed_over(a, w):
    v = jnp.cos(w[0])
    c, ys = lax.scan(lambda c, t: (jnp.sin(c @ (jnp.exp(v) * 0.1)) + t, c * t), a, jnp.arange(3.0))
    return c.sum() + (ys * ys).sum()


def counted(a, w):
    return lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) * w[i] + c * i, a).sum()


def chosen(a, w):
    return lax.cond(a.sum() > 0, lambda x, y: (jnp.sin(x) @ y).sum(),
                    lambda x, y: (jnp.cos(x) * 2).sum(), a, w[0])


def switched(a, w):
    return lax.switch(1, [lambda x: x * 0, jnp.exp, lambda x: x ** 3], a).sum() + w.sum()


def nested(a, w):
    def step(c, t):
        c = lax.cond(c.sum() > 0, lambda z: jnp.sin(z) * t, lambda z: z + t @ z, c)
        return c, lax.scan(lambda u, v: (u + v * v, u * v), jnp.zeros(3), c)
    c, (p, q) = lax.scan(step, a, w, reverse=True)
    return c.sum() + (p * p).sum() + (q ** 2).sum()


def mapped(a, w):
    return (lax.map(lambda t: jnp.sum(jnp.sin(t) @ a), w).sum()
            + lax.associative_scan(jnp.multiply, w + 2).sum() * 0.01)


def later(a, w):
    (c, d), _ = lax.scan(lambda c, t: ((c[1], c[1] * t + c[0]), None), (jnp.zeros((3, 3)), a), w)
    return (c * d).sum()


def indexed(a, w):
    (_, c), _ = lax.scan(lambda c, t: ((c[0] + 1, c[1] * jnp.sin(t[c[0]]) + a), c[0]), (0, a),
                         w.reshape(4, 9))
    return c.sum()


EVERY = [layers, closed_over, counted, chosen, switched, nested, mapped, later, indexed]


def until(a, w):
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.sin(s[1]) @ w[s[0]]),
                          (0, a))[1].sum()


def directional(f, args, direction, step=1e-2):
    """The derivative of f along a direction, by differences of fourth order."""
    def at(h):
        return float(f(*(np.float32(x + h * d) for x, d in zip(args, direction, strict=True))))
    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)


DIRECTION = tuple(RNG.normal(size=x.shape).astype(np.float32) for x in (A, W))


@pytest.mark.parametrize("f", [*EVERY, until])
def test_forward_derivatives_of_control_flow_equal_differences(f):
    _, got = st.jit(lambda a, w, d: st.jvp(lambda a, w: f(a, jnp.asarray(w)), (a, w), d))(
        A, W, DIRECTION)
    want = directional(st.jit(f), (A, W), DIRECTION)
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)


@rows("f", EVERY)
@rows("how", [
    lambda f: st.grad(f, (0, 1)), lambda f: st.jit(st.grad(f, (0, 1))),
    lambda f: st.grad(st.jit(f), (0, 1)), lambda f: st.jit(st.grad(st.checkpoint(f), (0, 1)))])
def test_reverse_mode_is_the_transpose_of_forward_mode(f, how):
    args = jnp.asarray(A), jnp.asarray(W)
    grads = how(f)(*args)
    _, tangent = st.jvp(f, args, DIRECTION)
    product = sum(np.vdot(g, d) for g, d in zip(grads, DIRECTION, strict=True))
    np.testing.assert_allclose(product, tangent, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("f", [layers, closed_over, chosen, nested])
def test_second_derivatives_agree_between_modes(f):
    args = jnp.asarray(A), jnp.asarray(W)
    g = st.jit(st.grad(lambda a, w: sum((x * d).sum() for x, d in zip(
        st.grad(f, (0, 1))(a, w), DIRECTION, strict=True)), (0, 1)))
    _, h = st.jvp(st.grad(f, (0, 1)), args, DIRECTION)
    for x, y in zip(g(*args), h, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)


def test_the_linear_map_of_a_while_can_be_used_again():
    args = jnp.asarray(A), jnp.asarray(W)
    value, linear = st.linearize(until, *args)
    np.testing.assert_allclose(value, until(*args), rtol=1e-5)
    np.testing.assert_allclose(linear(*DIRECTION), st.jvp(until, args, DIRECTION)[1], rtol=1e-5)


def test_a_while_has_no_reverse_derivative():
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work for "
                       "lax.while_loop or lax.fori_loop with dynamic start/stop values."):
        st.grad(until)(jnp.asarray(A), jnp.asarray(W))


def scans(program):
    for eqn in program.eqns:
        if eqn.primitive.name == "scan":
            yield eqn
        for name in eqn.op.subprograms:
            held = eqn.params[name]
            for inner in held if isinstance(held, tuple) else (held,):
                yield from scans(inner)


def test_a_derivative_has_one_scan_forward_and_one_backward():
    forward, backward = scans(st.make_jaxpr(st.grad(layers, (0, 1)))(A, W).jaxpr)
    assert (forward.params["reverse"], backward.params["reverse"]) == (False, True)


def test_what_iterations_share_is_not_stacked():
    forward, backward = scans(st.make_jaxpr(st.grad(closed_over))(A, W).jaxpr)
    # per iteration: the carry for y = c * t, and cos of the product; exp(v) comes once
    assert sum(v.aval.shape == (3, 3, 3) for v in forward.outvars) <= 3
    assert any(v.aval.shape == (3, 3) for v in backward.invars[:backward.params["num_consts"]])


# -- sharded ---------------------------------------------------------------------------------------

B = RNG.normal(size=(8, 8)).astype(np.float32)
V = (RNG.normal(size=(5, 8, 8)) * 0.3).astype(np.float32)


def deep(a, w):
    c, ys = lax.scan(lambda c, t: (jnp.tanh(c @ t), c.sum()), a, w)
    c = lax.cond(c.sum() > 0, jnp.sin, lambda c: c * c, c)
    return (c ** 2).sum() + (ys ** 2).sum()


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("specs", [(P("x"), P()), (P(("x", "y")), P())], ids=str)
@pytest.mark.parametrize("executor", ["simulated", "per_device"])
def test_gradients_of_sharded_loops(kind, specs, executor):
    want = st.jit(st.grad(deep, (0, 1)))(B, V)
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(kind,) * 2)
    with st.set_mesh(mesh), st.config.override(shardtrace_engine=executor):
        args = [st.device_put(v, NamedSharding(mesh, s))
                for v, s in zip((B, V), specs, strict=True)]
        got = st.jit(st.grad(deep, (0, 1)))(*args)
        for g, w, x in zip(got, want, args, strict=True):
            np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=2e-4, atol=2e-4)
            if kind is AxisType.Explicit:
                assert st.typeof(g) is st.typeof(x)


def steps(a, w):
    return (lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w), a) ** 2).sum()


def steps_on_blocks(a, w):
    def block(b, w):
        c = lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w), b)
        return lax.psum((c ** 2).sum(), "x")
    return st.shard_map(block, in_specs=(P("x"), P()), out_specs=P())(a, w)


def steps_with_one_sum(a, w):
    return steps(a, reshard(w, P(reduced={"x"})))


@pytest.mark.parametrize("f, kind", [
    (steps, AxisType.Auto), (steps, AxisType.Explicit), (steps_on_blocks, AxisType.Auto),
    (steps_on_blocks, AxisType.Explicit), (steps_with_one_sum, AxisType.Explicit)])
@pytest.mark.parametrize("executor", ["simulated", "per_device"])
def test_gradients_of_what_a_loop_closes_over(f, kind, executor):
    want = st.jit(st.grad(steps, (0, 1)))(B, V[0])
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(kind,) * 2)
    with st.set_mesh(mesh), st.config.override(shardtrace_engine=executor):
        got = st.jit(st.grad(f, (0, 1)))(st.device_put(B, P("x")), st.device_put(V[0], P()))
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
def test_gradients_where_devices_choose_differently(executor):
    mesh = st.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    halves = np.stack([np.abs(B[0]), -np.abs(B[1])])

    def f(a):
        return st.shard_map(lambda b: lax.cond(b.sum() > 0, jnp.sin, lambda b: b ** 3, b),
                            mesh=mesh, in_specs=P("x"), out_specs=P("x"))(a).sum()

    with st.config.override(shardtrace_engine=executor):
        got = st.jit(st.grad(f))(halves)
    np.testing.assert_allclose(got, np.stack([np.cos(halves[0]), 3 * halves[1] ** 2]), rtol=1e-4)


def test_gradients_of_pytrees_through_a_loop():
    def f(p):
        out = lax.scan(lambda c, x: ({"h": jnp.tanh(c["h"] @ p["w"] + x), "n": c["n"] + 1}, None),
                       {"h": p["h"], "n": 0}, p["xs"])[0]
        return (out["h"] * out["n"]).sum()

    p = {"w": A, "h": A[0], "xs": W[:, 0]}
    grads = st.grad(f)(tree_util.tree_map(jnp.asarray, p))
    assert {k: v.shape for k, v in grads.items()} == {"w": (3, 3), "h": (3,), "xs": (4, 3)}
