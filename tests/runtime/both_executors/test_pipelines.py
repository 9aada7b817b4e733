"""Pipelines written by hand, in a loop or step by step: each stage passes on what it made."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...executors import EXECUTORS, agree

N = 4
MESH = st.make_mesh((N,), ("s",), axis_types=(AxisType.Auto,))
MESH_2D = st.make_mesh((2, N), ("d", "s"), axis_types=(AxisType.Auto,) * 2)
RNG = np.random.default_rng(0)
WS = RNG.normal(size=(N, 6, 6)).astype(np.float32) / 2
XS = RNG.normal(size=(5, 4, 6)).astype(np.float32)


def varying(x, axes="s"):
    return lax.pcast(x, axes, to="varying")


def ring(x, step=1):
    return lax.ppermute(x, "s", [(i, (i + step) % N) for i in range(N)])


def line(x):
    return lax.ppermute(x, "s", [(i, i + 1) for i in range(N - 1)])


def layer(w, x):
    return jnp.tanh(x @ w)


def in_a_loop(ws, xs, write, send=ring, stage=layer):
    """write(out, y, done, last): the carried results with what a stage made; done: of which
    microbatch the last stage has it, below 0 of none; last: whether this is the last stage.
    """
    w, me, m = ws[0], lax.axis_index("s"), xs.shape[0]

    def tick(t, carry):
        state, out = carry
        y = stage(w, jnp.where(me == 0, xs[jnp.clip(t, 0, m - 1)], state))
        return send(y), write(out, y, t - (N - 1), me == N - 1)
    _, out = lax.fori_loop(0, m + N - 1, tick, (varying(jnp.zeros_like(xs[0])),
                                                varying(jnp.zeros_like(xs))))
    return lax.psum(jnp.where(me == N - 1, out, 0), "s")


def written(ws, xs, send=ring):
    """Results are written into a carried array by the last stage."""
    def write(out, y, done, last):
        return jnp.where(last & (done >= 0), lax.dynamic_update_index_in_dim(
            out, y, jnp.clip(done, 0, len(xs) - 1), 0), out)
    return in_a_loop(ws, xs, write, send)


def part_written(ws, xs):
    """The last stage writes what it has, others what was there."""
    def write(out, y, done, last):
        k = jnp.clip(done, 0, len(xs) - 1)
        before = lax.dynamic_index_in_dim(out, k, 0, keepdims=False)
        return lax.dynamic_update_index_in_dim(
            out, jnp.where(last & (done >= 0), y, before), k, 0)
    return in_a_loop(ws, xs, write)


def set_at(ws, xs):
    """As `part_written`, with `.at[].set`."""
    def write(out, y, done, last):
        k = jnp.clip(done, 0, len(xs) - 1)
        return out.at[k].set(jnp.where(last & (done >= 0), y, out[k]))
    return in_a_loop(ws, xs, write)


def set_whole(ws, xs):
    """As `set_at`, of an array that is then taken or left as a whole."""
    return in_a_loop(ws, xs, lambda out, y, done, last: jnp.where(
        last & (done >= 0), out.at[done].set(y), out))


def masked(ws, xs):
    """All stages but the last stack zeros."""
    w, me, m = ws[0], lax.axis_index("s"), xs.shape[0]

    def tick(state, t):
        y = layer(w, jnp.where(me == 0, xs[jnp.clip(t, 0, m - 1)], state))
        return ring(y), jnp.where(me == N - 1, y, 0)
    _, ys = lax.scan(tick, varying(jnp.zeros_like(xs[0])), jnp.arange(m + N - 1))
    return lax.psum(ys[N - 1:], "s")


def stacked(ws, xs, send=ring, stage=layer, reverse=False):
    """Results are what the last stage stacks."""
    w, me = ws[0], lax.axis_index("s")
    blank = jnp.zeros((N - 1, *xs.shape[1:]), xs.dtype)
    given = jnp.concatenate([blank, xs[::-1]] if reverse else [xs, blank])

    def tick(state, x):
        y = stage(w, jnp.where(me == 0, x, state))
        return send(y), y
    _, ys = lax.scan(tick, varying(jnp.zeros_like(xs[0])), given, reverse=reverse)
    ys = ys[:xs.shape[0]][::-1] if reverse else ys[N - 1:]
    return lax.psum(jnp.where(me == N - 1, ys, 0), "s")


def received_first(ws, xs):
    """What is carried is sent on where the next iteration begins."""
    w, me = ws[0], lax.axis_index("s")

    def tick(y, x):
        y = layer(w, jnp.where(me == 0, x, line(y)))
        return y, y
    given = jnp.concatenate([xs, jnp.zeros((N - 1, *xs.shape[1:]), xs.dtype)])
    _, ys = lax.scan(tick, varying(jnp.zeros_like(xs[0])), given)
    return lax.psum(jnp.where(me == N - 1, ys[N - 1:], 0), "s")


def steps(ws, xs, send=ring):
    """Without a loop; results are what the last stage made."""
    w, me, m = ws[0], lax.axis_index("s"), len(xs)
    state, outs = jnp.zeros_like(xs[0]), []
    for t in range(m + N - 1):
        outs.append(layer(w, jnp.where(me == 0, xs[min(t, m - 1)], state)))
        state = send(outs[-1])
    return lax.psum(jnp.where(me == N - 1, jnp.stack(outs[N - 1:]), 0), "s")


def deep(w, x):
    def one(x, _):
        x = x - x.mean(-1, keepdims=True)
        return x + jnp.tanh(x @ w), None
    return lax.scan(one, x, None, length=2)[0]


def plain(ws, xs, stage=lambda w, x: np.tanh(x @ w)):
    for w in ws:
        xs = stage(w, xs)
    return xs


def plain_deep(w, x):
    for _ in range(2):
        x = x - x.mean(-1, keepdims=True)
        x = x + np.tanh(x @ w)
    return x


PROGRAMS = {
    "written": (written, plain),
    "written, sent along a line": (lambda w, x: written(w, x, line), plain),
    "stacked": (stacked, plain),
    "stacked, sent along a line": (lambda w, x: stacked(w, x, line), plain),
    "stacked in reverse": (lambda w, x: stacked(w, x, reverse=True), plain),
    "received first": (received_first, plain),
    "written in part": (part_written, plain),
    "set": (set_at, plain),
    "set or left": (set_whole, plain),
    "masked": (masked, plain),
    "step by step": (steps, plain),
    "step by step, sent along a line": (lambda w, x: steps(w, x, line), plain),
    "loops in stages": (lambda w, x: stacked(w, x, stage=deep),
                        lambda w, x: plain(w, x, plain_deep)),
}


def mapped(body, mesh=MESH, specs=(P("s"), P()), out=P()):
    return st.shard_map(body, mesh=mesh, in_specs=specs, out_specs=out)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_stages(name, executor):
    body, want = PROGRAMS[name]
    with st.config.override(shardtrace_engine=executor):
        f = st.jit(mapped(body))
        np.testing.assert_allclose(f(WS, XS), want(WS, XS), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(f(WS, 2 * XS), want(WS, 2 * XS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_agree_between_executors(name):
    body, _ = PROGRAMS[name]
    run = mapped(body)
    agree(st.grad(lambda w, x: (run(w, x) ** 2).sum(), (0, 1)), WS, XS, rtol=1e-4, atol=1e-5)


def test_special_values_stay_with_their_microbatch():
    xs = XS.copy()
    xs[1, 2], xs[3, 0, 0] = np.nan, np.inf
    for body, want in PROGRAMS.values():
        if body not in (masked, set_at):        # there zeros of other stages are added
            with np.errstate(invalid="ignore"):
                np.testing.assert_allclose(st.jit(mapped(body))(WS, xs), want(WS, xs), rtol=1e-5,
                                           atol=1e-6)


def test_rows_written_at_another_place_than_they_are_read():
    def body(ws, xs):
        w, me, m = ws[0], lax.axis_index("s"), xs.shape[0]

        def tick(t, carry):
            state, out = carry
            y = layer(w, jnp.where(me == 0, xs[jnp.minimum(t, m - 1)], state))
            before = lax.dynamic_index_in_dim(out, jnp.minimum(t + 1, m - 1), 0, keepdims=False)
            y_or_before = jnp.where((me == N - 1) & (t >= N - 1), y, before)
            return ring(y), lax.dynamic_update_index_in_dim(out, y_or_before, t % m, 0)
        _, out = lax.fori_loop(0, m + N - 1, tick, (varying(jnp.zeros_like(xs[0])),
                                                    varying(xs)))
        return out[None]
    agree(mapped(body, out=P("s")), WS, XS, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("body", [written, part_written, set_at, masked, stacked, steps])
def test_batches_are_split_over_another_axis(body, executor):
    f = st.jit(mapped(body, MESH_2D, (P("s"), P(None, "d")), P(None, "d")))
    with st.config.override(shardtrace_engine=executor):
        np.testing.assert_allclose(f(WS, XS), plain(WS, XS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_stages_are_split_over_another_axis(executor):
    up, down = (RNG.normal(size=(N, *shape)).astype(np.float32) / 3 for shape in ((6, 8), (8, 6)))

    def stage(w, x):
        return lax.psum(jnp.tanh(x @ w[0]) @ w[1], "d")

    def one(ups, downs, xs):
        return stacked(((ups[0], downs[0]),), xs, stage=stage)
    f = st.jit(mapped(one, MESH_2D, (P("s", None, "d"), P("s", "d"), P())))
    want = XS
    for a, b in zip(up, down, strict=True):
        want = np.tanh(want @ a) @ b
    with st.config.override(shardtrace_engine=executor):
        np.testing.assert_allclose(f(up, down, XS), want, rtol=1e-4, atol=1e-5)


def test_several_things_are_passed_on():
    def body(ws, xs):
        w, me = ws[0], lax.axis_index("s")
        given = jnp.concatenate([xs, jnp.zeros((N - 1, *xs.shape[1:]), xs.dtype)])

        def tick(carry, x):
            a, b = carry
            y = layer(w, jnp.where(me == 0, x, a))
            z = jnp.where(me == 0, 0, b) + y.sum(-1)
            return (ring(y), ring(z)), (y, z)
        blank = varying(jnp.zeros_like(xs[0]))
        _, (ys, zs) = lax.scan(tick, (blank, blank[:, 0] * 0), given)
        last = me == N - 1
        return lax.psum((jnp.where(last, ys[N - 1:], 0), jnp.where(last, zs[N - 1:], 0)), "s")

    agree(mapped(body, out=(P(), P())), WS, XS, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_all_iterations_are_of_use_where_all_are_seen(executor):
    def body(ws, xs):
        w, me = ws[0], lax.axis_index("s")

        def tick(carry, x):
            state, total = carry
            y = layer(w, jnp.where(me == 0, x, state)) + 1
            return (line(y), total + y.sum(0)), y
        (_, total), ys = lax.scan(tick, (varying(jnp.zeros_like(xs[0])),
                                         varying(jnp.zeros(6, jnp.float32))), xs)
        return ys[None], total[None]
    with st.config.override(shardtrace_engine=executor):
        ys, total = st.jit(mapped(body, out=(P("s"), P("s"))))(WS, XS)
    want = np.zeros((N, 5, 4, 6), np.float32)
    for d in range(N):
        for t in range(5):
            x = XS[t] if d == 0 else want[d - 1, t - 1] if t else np.zeros((4, 6), np.float32)
            want[d, t] = np.tanh(x @ WS[d]) + 1
    np.testing.assert_allclose(ys, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, want.sum((1, 2)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_goes_round_is_computed_in_turns(executor):
    def body(ws, xs):
        w = ws[0]
        y = lax.fori_loop(0, 6, lambda t, y: ring(layer(w, y)) + 0.1 * t, xs)
        z = lax.fori_loop(0, 6, lambda t, y: ring(layer(w, y)), xs)
        return (y + z)[None]
    f = st.jit(mapped(body, specs=(P("s"), P("s")), out=P("s")))
    xs = RNG.normal(size=(N, 4, 6)).astype(np.float32)
    want = []
    for late in (0.1, 0):
        y = xs
        for t in range(6):
            y = np.roll(np.tanh(y @ WS), 1, 0) + late * t
        want.append(y)
    with st.config.override(shardtrace_engine=executor):
        np.testing.assert_allclose(np.asarray(f(WS, xs)).reshape(xs.shape), sum(want), rtol=1e-4,
                                   atol=1e-5)


def test_what_the_loop_begins_with_counts():
    def body(ws, xs):
        w, me = ws[0], lax.axis_index("s")

        def tick(state, x):
            y = layer(w, jnp.where(me == 0, x, state))
            return line(y), y
        return lax.scan(tick, varying(jnp.ones_like(xs[0])), xs)[1][None]
    agree(mapped(body, out=P("s")), WS, XS, rtol=1e-5)


# -- a pipeline as a shift of an array with one row a device --------------------------------------

def rows(x):
    axes = st.sharding.get_abstract_mesh().axis_names
    return lax.with_sharding_constraint(x, P("s", "d" if "d" in axes else None))


def shifted(w, xs, shift=lambda x: jnp.roll(x, 1, 0)):
    m = len(xs)

    def tick(i, carry):
        state, out = carry
        here = jnp.where(i < m, xs[jnp.minimum(i, m - 1)], 0)
        state = st.vmap(layer)(w, rows(state.at[0].set(here)))
        done = i - (N - 1)
        out = jnp.where(done >= 0, lax.dynamic_update_index_in_dim(
            out, state[-1], jnp.maximum(done, 0), 0), out)
        return shift(state), out
    blank = jnp.zeros((N, *xs.shape[1:]), xs.dtype)
    return lax.fori_loop(0, m + N - 1, tick, (blank, jnp.zeros_like(xs)))[1]


def shifted_items(w, xs):
    def tick(state, x):
        state = st.vmap(layer)(w, rows(jnp.concatenate([x[None], state[:-1]], 0)))
        return state, state[-1]
    ticks = jnp.concatenate([xs, jnp.zeros((N - 1, *xs.shape[1:]), xs.dtype)])
    return lax.scan(tick, jnp.zeros((N, *xs.shape[1:]), xs.dtype), ticks)[1][N - 1:]


SHIFTED = {
    "rolled": shifted,
    "zeros first": lambda w, x: shifted(
        w, x, lambda x: jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]], 0)),
    "padded": lambda w, x: shifted(w, x, lambda x: jnp.pad(x[:-1], ((1, 0), (0, 0), (0, 0)))),
    "items": shifted_items,
}


@pytest.mark.parametrize("mesh, batch", [(MESH, None), (MESH_2D, "d")], ids=["1d", "2d"])
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", SHIFTED)
def test_shifts_of_rows_are_pipelines(name, executor, mesh, batch):
    shardings = [st.NamedSharding(mesh, s) for s in (P("s"), P(None, batch))]
    with st.config.override(shardtrace_engine=executor), st.set_mesh(mesh):
        got = st.jit(SHIFTED[name], in_shardings=shardings)(WS, XS)
    np.testing.assert_allclose(got, plain(WS, XS), rtol=1e-5, atol=1e-6)
