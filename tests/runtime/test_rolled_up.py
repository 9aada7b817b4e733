"""Pipelines that are written out are executed as the loops that they are, with equal results."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

N = 4
MESH = st.make_mesh((N,), ("s",), axis_types=(AxisType.Auto,))
MESH_2D = st.make_mesh((2, N), ("d", "s"), axis_types=(AxisType.Auto,) * 2)
RNG = np.random.default_rng(0)
WS = RNG.normal(size=(N, 6, 6)).astype(np.float32) / 2
XS = RNG.normal(size=(5, 4, 6)).astype(np.float32)


def layer(w, x):
    return jnp.tanh(x @ w)


def send(x, ring=True):
    return lax.ppermute(x, "s", [(i, (i + 1) % N) for i in range(N if ring else N - 1)])


def written_out(ws, xs, ring=True, stage=lambda i, w, x: layer(w, x)):
    """What each tick gives, on each device."""
    w, me, m = ws[0], lax.axis_index("s"), len(xs)
    state, outs = jnp.zeros_like(xs[0]), []
    for i in range(m + N - 1):
        y = stage(i, w, jnp.where(me == 0, xs[min(i, m - 1)], state))
        outs.append(y)
        state = send(y, ring)
    return outs


def last_of(x):
    return lax.psum(jnp.where(lax.axis_index("s") == N - 1, x, 0), "s")


def stacked(ws, xs, **kwargs):
    return last_of(jnp.stack(written_out(ws, xs, **kwargs)[N - 1:]))


def one_by_one(ws, xs):
    return jnp.stack([last_of(y) for y in written_out(ws, xs)[N - 1:]])


def updated(ws, xs):
    w, me, m = ws[0], lax.axis_index("s"), len(xs)
    state, out = jnp.zeros_like(xs[0]), jnp.zeros_like(xs)
    for i in range(m + N - 1):
        y = layer(w, jnp.where(me == 0, xs[i % m], state))
        if i >= N - 1:
            out = out.at[i - (N - 1)].set(jnp.where(me == N - 1, y, out[i - (N - 1)]))
        state = send(y)
    return last_of(out)


def in_line(ws, xs):
    return stacked(ws, xs, ring=False)


def plain(ws, xs):
    out = np.asarray(xs)
    for w in ws:
        out = np.tanh(out @ w)
    return out


def run(body, *args, executor="simulated", mesh=MESH, specs=(P("s"), P()), out=P()):
    mapped = st.shard_map(lambda *a: body(*a), mesh=mesh, in_specs=specs, out_specs=out,
                          check_vma=False)
    with st.config.override(shardtrace_executor=executor):
        return np.asarray(st.jit(mapped)(*args))


def first_twice(ws, xs):
    """What the first tick gives is used before the second one, and after all."""
    outs = written_out(ws, xs)
    return stacked(ws, xs) + 0 * (outs[0] + jnp.sin(outs[0] + 1)).sum()


@pytest.mark.parametrize("body", [stacked, one_by_one, updated, in_line, first_twice])
@pytest.mark.parametrize("count", [5, 3])
def test_results_are_those_of_the_stages(body, count, staged):
    xs = XS[:count]
    got = run(body, WS, xs)
    assert staged == [True]
    np.testing.assert_allclose(got, plain(WS, xs), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got, run(body, WS, xs, executor="per_device"), rtol=1e-5, atol=1e-6)


def test_batches_are_split_over_another_axis(staged):
    got = run(stacked, WS, XS, mesh=MESH_2D, specs=(P("s"), P(None, "d")), out=P(None, "d"))
    assert staged == [True]
    np.testing.assert_allclose(got, plain(WS, XS), rtol=1e-5, atol=1e-6)


def test_in_a_loop_around_it(staged):
    def epochs(ws, xs):
        return lax.fori_loop(0, 2, lambda i, x: stacked(ws, x), xs)
    np.testing.assert_allclose(run(epochs, WS, XS), plain(WS, plain(WS, XS)), rtol=1e-5, atol=1e-6)
    assert True in staged


def test_all_that_ticks_give_may_be_read(staged):
    def body(ws, xs):
        return jnp.stack(written_out(ws, xs))[None]
    found = [run(body, WS, XS, executor=e, out=P("s")) for e in ("simulated", "per_device")]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
    assert staged == [True]


def test_special_values_stay_with_their_microbatch(staged):
    xs = XS.copy()
    xs[1, 2], xs[3, 0, 0] = np.nan, np.inf
    got = run(stacked, WS, xs)
    assert staged == [True]
    np.testing.assert_allclose(got, run(stacked, WS, xs, executor="per_device"), rtol=1e-5,
                               atol=1e-6)


UNLIKE = {
    "another function": lambda i, w, x: layer(w, x) if i != 3 else jnp.sin(x @ w),
    "another number": lambda i, w, x: layer(w, x) * (2.0 if i == 2 else 3.0),
    "zeros of another sign": lambda i, w, x: layer(w, x) + (0.0 if i == 2 else -0.0),
    "more in one": lambda i, w, x: layer(w, x) if i != 2 else layer(w, layer(w, x)),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_ticks_that_differ_stay_written_out(name, staged):
    def body(ws, xs):
        return stacked(ws, xs, stage=UNLIKE[name])
    found = [run(body, WS, XS, executor=e) for e in ("simulated", "per_device")]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
    assert staged == []


def test_ticks_may_have_arrays_of_their_own(staged):
    def body(ws, xs):
        return stacked(ws, xs, stage=lambda i, w, x: layer(w, x) * xs[i % len(xs), :, :1])
    found = [run(body, WS, XS, executor=e) for e in ("simulated", "per_device")]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
    assert staged == [True]


def test_ticks_may_have_loops_of_their_own(staged):
    def deep(i, w, x):
        return lax.fori_loop(0, 2, lambda _, x: layer(w, x), x)

    def body(ws, xs):
        return stacked(ws, xs, stage=deep)
    np.testing.assert_allclose(run(body, WS, XS), plain(np.repeat(WS, 2, 0), XS), rtol=1e-5,
                               atol=1e-6)
    assert True in staged

def test_what_a_tick_has_of_the_one_before_the_last_is_right():
    def body(ws, xs):
        w, me = ws[0], lax.axis_index("s")
        first = layer(w, jnp.where(me == 0, xs[0], jnp.zeros_like(xs[0])))
        state, outs = send(first), [first]
        for i in range(1, 7):
            outs.append(layer(w, jnp.where(me == 0, xs[i % 5], state)) * jnp.cos(first))
            state = send(outs[-1])
        return last_of(jnp.stack(outs))
    found = [run(body, WS, XS, executor=e) for e in ("simulated", "per_device")]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_loops_in_ticks_may_differ(staged):
    def unlike(ws, xs):
        return stacked(ws, xs, stage=lambda i, w, x: lax.fori_loop(
            0, 2, lambda _, x: layer(w, x) * (i + 1), x))
    found = [run(unlike, WS, XS, executor=e) for e in ("simulated", "per_device")]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_what_begins_with_something_else_stays_written_out(staged):
    def body(ws, xs):
        w, x = ws[0], xs[0]
        for _ in range(6):
            x = send(layer(w, x))
        return last_of(x)
    found = [run(body, WS, XS, executor=e) for e in ("simulated", "per_device")]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
    assert staged == []


def test_what_is_remembered_for_later_is_right(staged):
    def body(ws, xs):
        w, me = ws[0], lax.axis_index("s")
        state, before = jnp.zeros_like(xs[0]), jnp.zeros_like(xs[0])
        for i in range(7):
            y = layer(w, jnp.where(me == 0, xs[i % 5], state)) + before
            before, state = state, send(y)
        return last_of(state + before)
    found = [run(body, WS, XS, executor=e) for e in ("simulated", "per_device")]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_gradients_agree_between_executors():
    def gradient(executor):
        mapped = st.shard_map(lambda *a: stacked(*a), mesh=MESH, in_specs=(P("s"), P()),
                              out_specs=P())
        with st.config.override(shardtrace_executor=executor):
            return st.jit(st.grad(lambda w, x: (mapped(w, x) ** 2).sum(), (0, 1)))(WS, XS)
    for a, b in zip(gradient("simulated"), gradient("per_device"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_is_asked_of_a_device_that_does_not_keep_it_is_zeros(staged):
    def body(ws, xs):
        me, out = lax.axis_index("s"), jnp.zeros_like(xs)
        for i, y in enumerate(written_out(ws, xs)[N - 1:]):
            out = jnp.where(me == 1, out.at[i].set(y), out)
        return last_of(out)
    found = [run(body, WS, XS, executor=e) for e in ("simulated", "per_device")]
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(found[0], np.zeros_like(XS))
    assert staged == [True]
