"""Programs on rows that axes do not divide, each device alone, against one device.

What reads padding, and how regions, derivatives and indices carry it; with and without a context
mesh, split in several ways, by each objective.
"""
from __future__ import annotations

import contextlib

import numpy as np
import pytest

import shardtrace as st
from shardtrace import config, lax, nn
from shardtrace import numpy as jnp
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

MESH = st.make_mesh((2, 4), ("x", "y"))
RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 16)).astype(np.float32)
W = (RNG.normal(size=(16, 16)) * 0.3).astype(np.float32)


def branches(x, w):
    either = lax.cond(x.sum() > 0, lambda a: a[1:] * 2, lambda a: a[:-1] + 1, x)
    zeros = lax.cond(x.sum() > 0, lambda a: jnp.zeros_like(a), lambda a: jnp.tanh(a @ w), x[1:])
    return either.sum(0), zeros.max(0)


def loops(x, w):
    def body(carry):
        i, a = carry
        return i + 1, jnp.tanh(a @ w)
    counted = lax.while_loop(lambda carry: carry[0] < 3, body, (0, x[1:]))[1]
    seen = lax.while_loop(lambda a: (a ** 2).sum() > 1e-3, lambda a: a * 0.5, x[:-1])
    return counted.mean(0), seen.sum(1)[:5]


def scans(x, w):
    _, ys = lax.scan(lambda c, t: (c + 1, (c[1:] @ w) * t), x, jnp.arange(5.0))
    slopes = st.grad(lambda w: (lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x[1:], None,
                                         length=4)[0] ** 2).sum())(w)
    return ys.sum((0, 2)), slopes


def orders(x, w):
    y = x[3:]
    return (jnp.sort(y, 0)[:4], jnp.cumsum(y, 0)[-1], lax.cumsum(y, 0, reverse=True)[0],
            jnp.argmax(y, 0), lax.top_k(y.T, 3)[1], jnp.flip(y, 0)[0], jnp.median(y, 0))


def indices(x, w):
    y, i = x[1:], jnp.array([0, 5, 62, 63, 70, -1])
    return (y[i], y.at[i].add(1.0).sum(0), y.at[i].get(mode="fill", fill_value=-7.0),
            jnp.take(y, i, axis=0, mode="clip"), lax.dynamic_slice(y, (60, 0), (10, 16)),
            lax.dynamic_update_slice(y, jnp.ones((5, 16)), (61, 0)).sum(0))


def reductions(x, w):
    y = x[1:]
    return (nn.softmax(y, axis=0).sum(1), jnp.linalg.norm(y), y.var(0), jnp.roll(y, 3, 0)[0],
            jnp.concatenate([x[5:], x[:2]], 0).sum(0),
            jnp.where(y > 0, y, x[:-1]).prod(0))


def shapes(x, w):
    y = x[1:]
    return (y.reshape(63 * 16)[:7], y.reshape(7, 9, 16).sum(0),
            x.reshape(8, 8, 16)[:, 1:].sum((0, 1)), y.T @ y, jnp.diff(x, axis=0, n=2).max(),
            x[::3].sum(0), x[1::2][:, 1:].mean())


def windows(x, w):
    def loss(x):
        y = (jnp.pad(x, ((1, 2), (0, 0))) @ w)[None].transpose(0, 2, 1)
        y = lax.conv_general_dilated(y, jnp.ones((4, 16, 3)), (2,), "VALID")
        return (jnp.tanh(y) ** 2).sum()

    def greatest(x, step=1):
        return lax.reduce_window(x, -np.inf, lax.max, (3, 1), (step, 1), "VALID")
    sums = lax.reduce_window(x, 0.0, lax.add, (5, 1), (3, 1), "VALID")
    return (st.value_and_grad(loss)(x), greatest(x).sum(0), sums.sum(0),
            st.grad(lambda x: greatest(x, 2).sum())(x))


def bits(x, w):
    y = jnp.pad(x, ((1, 2), (0, 0)), constant_values=1.0)
    mantissa, exponent = jnp.frexp(y)
    return ((lax.bitcast_convert_type(y, jnp.int32) & 0xFFFF).sum(0), mantissa.sum(0),
            exponent.sum(0))


def derivatives(x, w):
    return (st.vmap(lambda r: r[1:] @ r[1:])(x),
            st.jvp(lambda x: jnp.tanh(x[1:] @ w), (x,), (x,))[1].sum(0),
            st.hessian(lambda w: jnp.tanh(x[1:3] @ w).sum())(w).sum((0, 1)))


def random_numbers(x, w):
    key, y = st.random.key(0), x[1:]
    return ((y * st.random.bernoulli(key, 0.5, y.shape)).sum(0), st.random.permutation(key, 63)[:4],
            st.random.normal(key, y.shape)[0])


def constraints(x, w):
    z = lax.with_sharding_constraint(x[1:] * 2, NamedSharding(MESH, P(("x", "y"))))
    ones = lax.with_sharding_constraint(jnp.ones((13, 5)), NamedSharding(MESH, P("x", "y")))
    return z, (ones * 3).sum(0), ones


PROGRAMS = (branches, loops, scans, orders, indices, reductions, shapes, windows, bits,
            derivatives, random_numbers, constraints)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_devices_alone_compute_what_one_device_does(f):
    want = st.tree.leaves(st.jit(f)(X, W))
    for spec, objective, context in (
            (P(("x", "y")), "time", False), (P("y"), "bytes", True), (P("x", "y"), "xla", False),
            (P("x"), "memory", True), (P(), "bytes", False)):
        x = st.device_put(X, NamedSharding(MESH, spec))
        with (config.override(shardtrace_engine="per_device", shardtrace_objective=objective),
              st.set_mesh(MESH) if context else contextlib.nullcontext()):
            got = st.tree.leaves(st.jit(f)(x, W))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-4,
                                       err_msg=f"{spec} by {objective}")


def test_auto_axes_beside_explicit_ones():
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(st.sharding.AxisType.Explicit,
                                                       st.sharding.AxisType.Auto))

    def f(x, w):
        return jnp.tanh(x[1:] @ w).sum(0)
    want = st.jit(f)(X, W)
    with st.set_mesh(mesh):
        x = st.device_put(X, NamedSharding(mesh, P("y")))
        w = st.device_put(W, NamedSharding(mesh, P(None, "x")))
        compiled = st.jit(f).lower(x, w).compile()
        assert {c.kind for c in compiled.collectives()} == {"collective-permute", "all-reduce"}
        with config.override(shardtrace_engine="per_device"):
            np.testing.assert_allclose(np.asarray(st.jit(f)(x, w)), np.asarray(want), rtol=2e-4,
                                       atol=2e-4)


ROWS = np.array([0, 12, 13, -1, 40, 5])


@rows("n", [10, 13])
@rows("f", [
    lambda a: jnp.sort(a, 0), lambda a: jnp.sort(a, 0, descending=True),
    lambda a: lax.sort((a, -a), dimension=0)[1], lambda a: jnp.argsort(jnp.argsort(a, 0), 0),
    lambda a: lax.top_k(a.T, a.shape[0])[0].T,
    st.grad(lambda a: (jnp.sort(a, 0) * jnp.sort(a, 0)[3]).sum()),
    lax.cummax, lax.cumsum, lambda a: lax.cumlogsumexp(a, reverse=True), lambda a: lax.rev(a, (0,)),
    lambda a: jnp.roll(a, 3, 0), lambda a: a.at[ROWS].set(7.0, mode="drop"),
    lambda a: a.at[ROWS].max(1.0, mode="clip"), lambda a: a.at[ROWS].add(1.0),
    lambda a: a.at[np.resize(ROWS, len(a))].get(mode="fill"),
    lambda a: lax.dynamic_update_slice(a, a[:4], (11, 0)),
    lambda a: a.at[np.resize(ROWS, len(a))].get(mode="clip"),
    lambda a: jnp.pad(a, ((1, 0), (0, 0)))[1:],
    lambda a: jnp.concatenate([a[1:], a[:1]]), lambda a: a - a.max(0), lambda a: a - a.prod(0)])
def test_what_fills_few_rows_fills_more_of_them(f, n):
    """13 rows over two devices are 14, and 16 where those that they meet are over four; 10 are not
    padded before they meet these.
    """
    def met(v, over):
        return over("y", v[1:]) + f(over("x", v[:-1]))

    x = st.device_put(X[:n + 1], NamedSharding(MESH, P()))
    want = st.jit(lambda v: met(v, lambda axis, part: part))(x)
    with config.override(shardtrace_engine="per_device"):
        got = st.jit(lambda v: met(v, lambda axis, part: lax.with_sharding_constraint(
            part, NamedSharding(MESH, P(axis)))))(x)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("value", [0.0, 0.5, -np.inf])
@pytest.mark.parametrize("reduced", [jnp.sum, jnp.max, jnp.prod])
def test_columns_that_are_added_stand_in_padded_rows_too(value, reduced):
    def f(v):
        v = lax.with_sharding_constraint(v, NamedSharding(MESH, P("y")))
        return reduced(jnp.pad(v, ((0, 0), (1, 2)), constant_values=value), axis=0)

    with config.override(shardtrace_engine="per_device"):
        got = st.jit(f)(st.device_put(X[:13], NamedSharding(MESH, P())))
    want = reduced(np.pad(X[:13], ((0, 0), (1, 2)), constant_values=value), axis=0)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-5, atol=2e-5)


def test_a_branch_that_only_returns_what_it_is_given_pads_it():
    def f(x, other, columns):
        def split(a):
            return lax.with_sharding_constraint(a, NamedSharding(MESH, P("y")))
        return lax.switch(columns[0, 0], [lambda _: other, split, lambda _: columns], x)
    x, other, columns = (np.arange(24, dtype=np.int32).reshape(6, 4) + n for n in (40, 80, 0))
    for taken, wanted in enumerate((other, x, columns + 2)):
        args = [st.device_put(a, NamedSharding(MESH, P(None, *axes)))
                for a, *axes in ((x,), (other,), (columns + taken, "y"))]
        with config.override(shardtrace_engine="per_device"):
            np.testing.assert_array_equal(st.jit(f)(*args), wanted)
