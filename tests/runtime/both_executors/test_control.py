"""Loops and branches on devices: partitioned, and going different ways in a shard_map."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, tree_util
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

RNG = np.random.default_rng(0)
A = RNG.normal(size=(8, 8)).astype(np.float32)
W = (RNG.normal(size=(5, 8, 8)) * 0.3).astype(np.float32)
EXECUTORS = ["simulated", "per_device"]


def close(got, want):
    for g, w in zip(tree_util.tree_leaves(got), tree_util.tree_leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(g), w, rtol=2e-4, atol=2e-4)


# -- partitioned programs --------------------------------------------------------------------------

def layers(a, w):
    def step(c, t):
        c = jnp.tanh(c @ t)
        return c, (c.sum(), c * 2)
    return lax.scan(step, a, w)


def test_what_is_carried_is_the_same_everywhere_in_the_first_iteration_alone():
    x = np.arange(1, 9, dtype=np.float32) / 8

    def run(x):
        return lax.scan(lambda c, _: (lax.psum(c * x, "x") / 4 + jnp.arange(2.0), None),
                        jnp.zeros(2), None, length=3)[0]

    def loop(x):
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (
            s[0] + 1, lax.psum(s[1] * x, "x") / 4 + jnp.arange(2.0)), (0, jnp.zeros(2)))[1]
    want = np.zeros(2)
    for _ in range(3):
        want = (want * x.reshape(4, 2)).sum(0) / 4 + np.arange(2)
    for f in (run, loop):
        close(st.jit(st.shard_map(f, mesh=st.make_mesh((4,), ("x",)), in_specs=P("x"),
                                  out_specs=P()))(x), want)


def layers_of_numpy(a, w):
    sums, twice = [], []
    for t in w:
        a = np.tanh(a @ t)
        sums.append(a.sum())
        twice.append(a * 2)
    return a, (np.stack(sums), np.stack(twice))


def backwards(a, w):
    return lax.scan(lambda c, t: (c + t, c), a, w, reverse=True)


def backwards_of_numpy(a, w):
    out = []
    for t in w[::-1]:
        out.append(a)
        a = a + t
    return a, np.stack(out[::-1])


def until(a, w):
    return lax.while_loop(lambda s: (s[0] < 7) & (jnp.abs(s[1]).sum() > 3.0),
                          lambda s: (s[0] + 1, s[1] @ w[0]), (0, a))


def until_of_numpy(a, w):
    i = 0
    while i < 7 and np.abs(a).sum() > 3:
        i, a = i + 1, a @ w[0]
    return i, a


def choices(a, w):
    return (lax.cond(a.sum() > 0, lambda x: jnp.sin(x) + w[1], lambda x: x * 2, a),
            lax.switch(jnp.int32(7), [lambda x: x, lambda x: x * 3, lambda x: x - 1], a))


def choices_of_numpy(a, w):
    return (np.sin(a) + w[1] if a.sum() > 0 else a * 2), a - 1


def turning(a, w):
    return lax.fori_loop(0, 3, lambda i, c: c.T + i, a)


def turning_of_numpy(a, w):
    for i in range(3):
        a = a.T + i
    return a


def nested(a, w):
    def step(c, t):
        d = lax.fori_loop(0, 3, lambda i, z: z + t * i, c)
        return lax.cond(d.sum() > 0, lambda: d, lambda: -d), lax.map(lambda r: r.sum(), d)
    return lax.scan(step, a, w)


def nested_of_numpy(a, w):
    rows = []
    for t in w:
        d = a + 3 * t
        rows.append(d.sum(1))
        a = d if d.sum() > 0 else -d
    return a, np.stack(rows)


PROGRAMS = [(layers, layers_of_numpy), (backwards, backwards_of_numpy), (until, until_of_numpy),
            (choices, choices_of_numpy), (turning, turning_of_numpy), (nested, nested_of_numpy)]
SPECS = [(P(), P()), (P("x"), P()), (P("x", "y"), P()), (P(), P(None, "y")),
         (P(None, "y"), P(None, "y", None)), (P("y"), P(None, None, "x"))]


def test_what_a_while_passes_on_is_what_it_had_before(executor):
    def f(x):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[0], c[3], c[2]),
                              (0, 7, x, x + 1))
    assert [int(v) for v in st.jit(f)(10)] == [3, 2, 11, 10]
    mesh = st.make_mesh((2,), ("X",), axis_types=(AxisType.Auto,))
    g = st.shard_map(lambda x: [v[None] for v in f(x[0])[1:]], mesh=mesh, in_specs=P("X"),
                     out_specs=P("X"), check_vma=False)
    close(st.jit(g)(np.array([10, 20])), list(np.array([[2, 2], [11, 21], [10, 20]])))


@pytest.mark.parametrize("f, want", PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
@pytest.mark.parametrize("specs", SPECS, ids=str)
def test_sharded_over_auto_axes(f, want, specs, executor):
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    a, w = (st.device_put(v, NamedSharding(mesh, s)) for v, s in zip((A, W), specs, strict=True))
    close(st.jit(f)(a, w), want(A, W))


EXPLICIT = [(layers, layers_of_numpy, P("x"), P()), (layers, layers_of_numpy, P(("x", "y")), P()),
            (backwards, backwards_of_numpy, P("x", "y"), P(None, "x", "y")),
            (until, until_of_numpy, P("y"), P()),
            (choices, choices_of_numpy, P("x", "y"), P(None, "x", "y")),
            (nested, nested_of_numpy, P(None, "y"), P(None, None, "y"))]


@pytest.mark.parametrize("f, want, sa, sw", EXPLICIT,
                         ids=[f"{f.__name__}-{sa}" for f, _, sa, _ in EXPLICIT])
def test_sharded_over_explicit_axes(f, want, sa, sw, executor):
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with st.set_mesh(mesh):
        a, w = (st.device_put(v, NamedSharding(mesh, s)) for v, s in ((A, sa), (W, sw)))
        out = st.jit(f)(a, w)
        close(out, want(A, W))
        close(f(a, w), want(A, W))
        first = tree_util.tree_leaves(out)[-1 if f is until else 0]
        assert first.sharding.is_equivalent_to(NamedSharding(mesh, sa), 2)


def test_a_collective_in_a_body_runs_once_an_iteration(executor):
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    f = st.jit(st.shard_map(lambda b: lax.fori_loop(0, 3, lambda i, c: c + lax.psum(c, "x"), b),
                            mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    want = np.arange(8, dtype=np.float32)
    for _ in range(3):
        want = want + want.sum()
    np.testing.assert_array_equal(f(np.arange(8, dtype=np.float32)), want)


# -- devices that go different ways ----------------------------------------------------------------

X = np.arange(8, dtype=np.float32)


def per_device(f, executor, x=X):
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    spec = P(("x", "y"))
    return np.asarray(st.jit(st.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec))(x))


def doubled_until(limit):
    def one(v):
        while v < limit:
            v = 2 * v + 1
        return v
    return one


def steps_to(v):
    while v < 20:
        v += 1
        while v % 5:
            v += 1
    return v


RING = [(i, (i + 1) % 4) for i in range(4)]

DIFFERENT = [
    ("while", lambda b: lax.while_loop(lambda c: c.sum() < 10, lambda c: 2 * c + 1, b),
     [doubled_until(10)(v) for v in X]),
    ("cond", lambda b: lax.cond(b.sum() > 3, lambda c: c * 2, lambda c: -c, b),
     [v * 2 if v > 3 else -v for v in X]),
    ("constants", lambda b: lax.cond(b.sum() > 3, lambda: 1.0, lambda: 2.0) * jnp.ones(1),
     [1.0 if v > 3 else 2.0 for v in X]),
    ("switch", lambda b: lax.switch(b.sum().astype(int) % 3, [
        lambda c: c * 2, lambda c: -c, lambda c: c + 100], b),
     [(v * 2, -v, v + 100)[int(v) % 3] for v in X]),
    ("a loop in a loop", lambda b: lax.while_loop(lambda c: c.sum() < 20, lambda c: lax.while_loop(
        lambda z: z.sum() % 5 != 0, lambda z: z + 1, c + 1), b), [steps_to(v) for v in X]),
    # the inner loop would never end on the devices that are not in this branch
    ("a loop in a branch", lambda b: lax.cond(b.sum() <= 5, lambda c: lax.while_loop(
        lambda z: z.sum() != 5, lambda z: z + 1, c), lambda c: -c, b),
     [5 if v <= 5 else -v for v in X]),
    ("a scan in a branch", lambda b: lax.cond(b.sum() > 2, lambda: lax.scan(lambda c, t: (
        lax.cond(c.sum() > t, lambda: c + lax.axis_index("x"), lambda: c - 1) + t, c), b,
        jnp.arange(3.0))[0], lambda: b), [0, 1, 2, 6, 10, 11, 12, 13]),
    ("carries apart", lambda b: jnp.stack([x.sum().astype(jnp.float32) for x in lax.while_loop(
        lambda s: s[1].sum() < 6, lambda s: (s[0] + 1, s[1] + 1), (0, b))])[:1],
     [max(0, 6 - v) for v in X]),
    ("a sum over an axis that agrees", lambda b: lax.while_loop(
        lambda c: lax.psum(c.sum(), "y") < 100, lambda c: 2 * c + lax.psum(b, "y"), b),
     [42, 50, 58, 66, 30, 32, 34, 36]),
    ("a ring of devices that agree", lambda b: lax.cond(
        lax.axis_index("x") == 0, lambda c: lax.ppermute(c, "y", RING), lambda c: c * 10, b),
     [3, 0, 1, 2, 40, 50, 60, 70]),
]


@pytest.mark.parametrize("f, want", [d[1:] for d in DIFFERENT], ids=[d[0] for d in DIFFERENT])
def test_each_device_goes_its_own_way(f, want, executor):
    np.testing.assert_array_equal(per_device(f, executor), np.asarray(want, np.float32))


SPLIT = [
    ("while", lambda b: lax.while_loop(
        lambda c: c.sum() < 10, lambda c: 2 * c + lax.psum(b, "y"), b)),
    ("cond", lambda b: lax.cond(
        lax.axis_index("x") == 0, lambda c: lax.pcast(lax.psum(c, "x"), "x", to="varying"),
        lambda c: c * 10, b)),
    ("cond", lambda b: lax.cond(lax.axis_index("y") == 0, lambda c: lax.fori_loop(
        0, 2, lambda i, z: lax.ppermute(z, "y", RING), c), lambda c: c, b)),
]


@pytest.mark.parametrize("name, f", SPLIT)
def test_a_collective_that_a_predicate_splits_is_an_error(name, f, executor):
    with pytest.raises(RuntimeError, match=f"the predicate of `{name}`") as caught:
        per_device(f, executor)
    text = str(caught.value)
    assert "would wait here" in text and f"this `{name}` goes different ways" in text


def test_a_predicate_that_may_split_a_group_but_does_not_is_none(executor):
    out = per_device(lambda b: lax.while_loop(
        lambda c: c.sum() < 3, lambda c: c + 1 + 0 * lax.psum(b, "y"), b), executor,
        np.zeros(8, np.float32))
    np.testing.assert_array_equal(out, np.full(8, 3, np.float32))


def test_a_finished_device_keeps_what_it_had(executor):
    out = per_device(lambda b: lax.while_loop(
        lambda c: (c.sum() < 3) & (c.sum() >= 0), lambda c: jnp.where(c >= 2, jnp.nan, c + 1), b),
        executor, np.asarray([-1, 0, 1, 2, 3, 4, -5, 9], np.float32))
    want = [-1, np.nan, np.nan, np.nan, 3, 4, -5, 9]
    np.testing.assert_array_equal(out, np.asarray(want, np.float32))


def test_iterations_plan_nothing():
    calls = []
    body = lambda i, c: (calls.append(i), c * 2)[1]                              # noqa: E731
    f = st.jit(lambda a: lax.fori_loop(0, 100, body, a))
    f(A)
    f(A + 1)
    assert len(calls) == 1


def test_untracked_types_change_no_value(executor):
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    f = st.jit(st.shard_map(lambda b: lax.while_loop(
        lambda c: c.sum() < 10, lambda c: 2 * c + 1, b), mesh=mesh, in_specs=P("x"),
        out_specs=P("x"), check_vma=False))
    np.testing.assert_array_equal(f(X), [doubled_until(10)(v) for v in X])


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_blocks_that_go_different_ways_may_be_sharded_over_other_axes(kind, executor):
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(kind,) * 2)
    spec = P("x", None) if kind is AxisType.Explicit else P("x", "y")
    with st.set_mesh(mesh):
        f = st.jit(st.shard_map(lambda b: lax.cond(
            lax.axis_index("x") == 0, lambda c: jnp.sort(c, 0) + c.sum(), lambda c: c @ c.T @ c, b),
            in_specs=P("x"), out_specs=P("x"), axis_names={"x"}))
        out = f(st.device_put(A, spec))
    first, second = A[:4], A[4:]
    want = np.concatenate([np.sort(first, 0) + first.sum(), second @ second.T @ second])
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


def test_what_only_counts_iterations_ends_where_counting_ends():
    big = np.int32(2**31 - 5)

    def scanned(x, i, j, u):
        def body(c, _):
            x, i, j, u, k = c
            return (x * 0.5, i + 3, j - j // 2, u + jnp.uint8(200), k + 1), k
        (x, i, j, u, k), ks = lax.scan(body, (x, i, j, u, jnp.int32(7)), None, length=9)
        return x, i, j, u, k, ks

    def looped(x, i, j, u):
        def body(c):
            x, i, j, u, k = c
            return x * 0.5, i + 3, j - j // 2, u + jnp.uint8(200), k + 1
        return lax.while_loop(lambda c: c[4] < 16, body, (x, i, j, u, jnp.int32(7)))

    wanted = [np.float32(2.0 ** -9), np.int32((int(big) + 27 + 2**31) % 2**32 - 2**31), 1,
              (5 + 9 * 200) % 256, 16]
    arguments = (np.float32(1), big, np.int32(100), np.uint8(5))
    for f in (st.jit(scanned), st.jit(looped)):
        for _ in range(3):
            found = f(*arguments)
            assert [np.asarray(x).item() for x in found[:5]] == [float(w) for w in wanted]
            assert [x.dtype for x in found[:4]] == [np.float32, np.int32, np.int32, np.uint8]
    assert np.asarray(found[4]).item() == 16
    np.testing.assert_array_equal(st.jit(scanned)(*arguments)[5], np.arange(7, 16))
    counting = st.jit(lambda: lax.fori_loop(0, 1000, lambda i, c: c + 2, 1))
    assert [int(counting()) for _ in range(3)] == [2001] * 3
