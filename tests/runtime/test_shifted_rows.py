"""Loops that shift an array of one row a device are executed stage by stage, with equal results."""
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
XS = RNG.normal(size=(5, 8, 6)).astype(np.float32)


def layer(w, x):
    return jnp.tanh(x @ w)


def split(x):
    axes = st.sharding.get_abstract_mesh().axis_names
    return lax.with_sharding_constraint(x, P("s", "d" if "d" in axes else None))


def begun(xs, n=N):
    return jnp.zeros((n, *xs.shape[1:]), xs.dtype)


def counted(w, xs, shift=lambda x: jnp.roll(x, 1, 0), stage=layer):
    """The loop counts; inputs are put into the first row, results into an array that is carried."""
    m, n = len(xs), len(w)

    def tick(i, carry):
        state, out = carry
        here = jnp.where(i < m, xs[jnp.minimum(i, m - 1)], 0)
        state = st.vmap(stage)(w, split(state.at[0].set(here)))
        done = i - (n - 1)
        out = jnp.where(done >= 0, lax.dynamic_update_index_in_dim(
            out, state[-1], jnp.maximum(done, 0), 0), out)
        return shift(state), out
    return lax.fori_loop(0, m + n - 1, tick, (begun(xs, n), jnp.zeros_like(xs)))[1]


def shifted_by_zeros(w, xs):
    return counted(w, xs, lambda x: jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]], 0))


def set_around(w, xs, layer=layer):
    """Rows are chosen by their number, and results written where others have been before."""
    m = len(xs)

    def tick(i, carry):
        state, out = carry
        first = lax.broadcasted_iota(jnp.int32, state.shape, 0) == 0
        y = split(st.vmap(layer)(w, split(jnp.where(first, xs[i % m][None], state))))
        out = out.at[(i - (N - 1)) % m].set(y[-1])
        return jnp.concatenate([y[-1:], y[:-1]]), out
    return lax.fori_loop(0, m + N - 1, tick, (begun(xs), jnp.zeros_like(xs)))[1]


def scanned(w, xs, rolls=False):
    """Inputs are iterated over, and so are results."""
    def tick(state, x):
        if rolls:
            state = jnp.roll(state, 1, 0).at[0].set(x)
        else:
            state = jnp.concatenate([x[None], state[:-1]], 0)
        state = st.vmap(layer)(w, split(state))
        return state, state[-1]
    ticks = jnp.concatenate([xs, jnp.zeros((N - 1, *xs.shape[1:]), xs.dtype)])
    return lax.scan(tick, begun(xs), ticks)[1][N - 1:]


def plain(ws, xs):
    out = np.asarray(xs)
    for w in ws:
        out = np.tanh(out @ w)
    return out


FORMS = {"counted": counted, "shifted by zeros": shifted_by_zeros, "set around": set_around,
         "scanned": scanned, "rolled": lambda w, x: scanned(w, x, rolls=True)}


def run(f, *args, mesh=MESH, specs=(P("s"), P()), executor="simulated"):
    with st.config.override(shardtrace_executor=executor), st.set_mesh(mesh):
        shardings = [st.NamedSharding(mesh, s) for s in specs]
        return st.tree.map(np.asarray, st.jit(f, in_shardings=shardings)(*args))


@pytest.mark.parametrize("count", [5, 4, 2])
@pytest.mark.parametrize("name", FORMS)
def test_results_are_those_of_the_stages(name, count, staged):
    xs = XS[:count]
    got = run(FORMS[name], WS, xs)
    assert staged == [True]
    np.testing.assert_allclose(got, plain(WS, xs), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got, run(lambda *a: FORMS[name](*a), WS, xs, executor="per_device"),
                               rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FORMS)
def test_batches_are_split_over_another_axis(name, staged):
    got = run(FORMS[name], WS, XS, mesh=MESH_2D, specs=(P("s"), P(None, "d")))
    assert staged == [True]
    np.testing.assert_allclose(got, plain(WS, XS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FORMS)
def test_special_values_stay_with_their_microbatch(name, staged):
    xs = XS.copy()
    xs[1, 2], xs[3, 0, 0] = np.nan, np.inf
    got = run(FORMS[name], WS, xs)
    assert staged == [True]
    np.testing.assert_allclose(got, run(lambda *a: FORMS[name](*a), WS, xs, executor="per_device"),
                               rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FORMS)
def test_gradients_agree_between_executors(name):
    def gradient(w, xs):
        return st.grad(lambda w, x: (FORMS[name](w, x) ** 2).sum(), (0, 1))(w, xs)
    found = [run(lambda *a: gradient(*a), WS, XS, executor=e) for e in ("simulated", "per_device")]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_integers_are_passed_on_exactly(staged):
    ws = RNG.integers(-3, 4, (N, 6, 6)).astype(np.int32)
    xs = RNG.integers(-3, 4, XS.shape).astype(np.int32)

    def f(w, x):
        return counted(w, x, stage=lambda w, x: x @ w)
    want = xs
    for w in ws:
        want = want @ w
    np.testing.assert_array_equal(run(f, ws, xs), want)
    assert staged == [True]


@pytest.mark.parametrize("first", ["s", "d"])
def test_exchanges_along_other_axes_stay_in_a_stage(first, staged):
    """Experts along one axis, stages along the other."""
    def body(w, xs):
        me = lax.axis_index("s")

        def shuffled(x):
            return lax.all_to_all(x, "d", 1, 0, tiled=True)

        def tick(state, x):
            x = jnp.where(me == 0, shuffled(x) if first == "d" else x, state)
            y = jnp.tanh(shuffled(x).reshape(x.shape) @ w[0])
            return lax.ppermute(y, "s", [(i, i + 1) for i in range(N - 1)]), y
        ticks = jnp.concatenate([xs, jnp.zeros((N - 1, *xs.shape[1:]), xs.dtype)])
        if first == "d":
            ticks = ticks.reshape(len(ticks), 2, 12)
            ys = lax.scan(tick, jnp.zeros((4, 6), xs.dtype), ticks)[1][N - 1:]
        else:
            ys = lax.scan(tick, jnp.zeros_like(xs[0]), ticks)[1][N - 1:]
        return lax.psum(jnp.where(me == N - 1, ys, 0), "s")
    f = st.shard_map(body, mesh=MESH_2D, in_specs=(P("s"), P(None, "d")),
                     out_specs=P(None, "d"), check_vma=False)
    found = [run(lambda *a: f(*a), WS, XS, mesh=MESH_2D, specs=(P("s"), P(None, "d")), executor=e)
             for e in ("simulated", "per_device")]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
    assert staged == [True]


def test_zeros_have_the_sign_that_they_have_as_a_sum(staged):
    def f(w, x):
        return set_around(w, x, lambda w, x: -0.0 * jnp.abs(x @ w))
    found = [run(lambda *a: f(*a), WS, XS, executor=e) for e in ("simulated", "per_device")]
    np.testing.assert_array_equal(*map(np.signbit, found))
    assert staged == [True]


def two_rows(w, xs):
    return counted(w, xs)


def every_row(w, xs):
    """The state is a result, too."""
    def tick(state, x):
        state = st.vmap(layer)(w, split(jnp.concatenate([x[None], state[:-1]], 0)))
        return state, state[1] + state[-1]
    return lax.scan(tick, begun(xs), xs)


def read_back(w, xs):
    """The last row goes back into the first."""
    def tick(state, x):
        state = jnp.roll(state, 1, 0).at[0].add(x)
        state = st.vmap(layer)(w, split(state))
        return state, state[-1]
    return lax.scan(tick, begun(xs), xs)[1]


def written_over(w, xs):
    """What one iteration writes the next one reads, or writes over in part."""
    def tick(i, carry):
        state, out = carry
        state = jnp.concatenate([xs[i][None] + out[0], state[:-1]], 0)
        state = st.vmap(layer)(w, split(state))
        return state, lax.dynamic_update_slice(out, state[-1][:4], (4 * (i % 2), 0))
    return lax.fori_loop(0, len(xs), tick, (begun(xs), jnp.zeros_like(xs[0])))[1]


@pytest.mark.parametrize("f", [every_row, read_back, written_over, two_rows])
def test_other_loops_are_as_they_were(f):
    ws = np.concatenate([WS, WS[::-1]]) if f is two_rows else WS
    found = [run(lambda *a: f(*a), ws, XS, executor=e) for e in ("simulated", "per_device")]
    for a, b in zip(*map(st.tree.leaves, found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_parts_of_the_last_row_may_be_chosen_by_device():
    """As `shard_map` allows, and the partitioner does not write: each has its own choice."""
    def body(w, xs):
        me = lax.axis_index("s")

        def tick(state, x):
            state = jnp.tanh(jnp.where(me == 0, x, lax.ppermute(
                state, "s", [(i, i + 1) for i in range(N - 1)])) @ w[0])
            a, b = (lax.all_to_all(x[None], "s", 1, 0, tiled=True)[N - 1] for x in (state, -state))
            return state, jnp.where(me == 1, a, b)
        return lax.scan(tick, lax.pcast(jnp.zeros_like(xs[0]), "s", to="varying"), xs)[1]
    f = st.shard_map(body, mesh=MESH, in_specs=(P("s"), P()), out_specs=P(None, "s"))
    found = [run(lambda *a: f(*a), WS, XS, executor=e) for e in ("simulated", "per_device")]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
    assert found[0].min() < 0 < found[0].max()
