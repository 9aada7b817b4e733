"""Rows written along a split dimension, at starts that are known and that are values."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

MESH = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(64, 512)).astype(np.float32)
PART = RNG.normal(size=(64, 40)).astype(np.float32)
LARGE = RNG.normal(size=(64, 300)).astype(np.float32)           # more than a block
SPECS = [P("x", "y"), P(None, "y"), P(None, ("x", "y")), P(None, ("y", "x"))]


def updated(x, part, start):
    out, n = x.copy(), part.shape[1]
    start += x.shape[1] if start < 0 else 0
    start = min(start, x.shape[1] - n)
    out[:, start:start + n] = part
    return out


def placed(spec, x=DATA):
    return st.device_put(x, st.NamedSharding(MESH, spec))


@rows("executor", ["simulated", "per_device"])
@rows("part", [PART, LARGE])
@rows("spec", SPECS)
def test_updates_at_starts_that_are_values(spec, part, executor):
    def f(x, part, i):
        return lax.dynamic_update_slice(x, part, (0, i))
    with st.config.override(shardtrace_engine=executor):
        jitted = st.jit(f)
        for start in (0, 5, 100, 127, 128, 200, 480, 511, 10**6, -3):
            got = jitted(placed(spec), part, np.int32(start))
            np.testing.assert_array_equal(got, updated(DATA, part, start))
            grads = st.jit(st.grad(lambda x, part, i: (f(x, part, i) ** 2).sum(), (0, 1)))(
                placed(spec), part, np.int32(start))
            np.testing.assert_array_equal(grads[0], updated(2 * DATA, 0 * part, start))
            np.testing.assert_allclose(grads[1], 2 * part, rtol=1e-6)


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_rows_at_known_places(spec, executor):
    def changed(x, rows, value):
        out = np.array(x)
        out[:, rows] = value
        return out
    with st.config.override(shardtrace_engine=executor):
        x = placed(spec)
        np.testing.assert_array_equal(st.jit(lambda x: x.at[:, 130].set(7))(x),
                                      changed(DATA, 130, 7))
        np.testing.assert_array_equal(st.jit(lambda x: x.at[:, 100:140].set(x[:, :40]))(x),
                                      changed(DATA, slice(100, 140), DATA[:, :40]))
        np.testing.assert_array_equal(st.jit(lambda x, p: x.at[:, 3:43].set(p))(x, PART),
                                      changed(DATA, slice(3, 43), PART))
        flat = placed(P(spec[1]), DATA.reshape(-1))
        want = DATA.reshape(-1).copy()
        want[5] = 1
        np.testing.assert_array_equal(st.jit(lambda x: x.at[5].set(1.))(flat), want)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_what_was_there_is_not_written_over(spec):
    """Neither an argument, nor what is read later; also in a loop."""
    def f(x, part):
        y = x * 2
        z = lax.dynamic_update_slice(y, part, (0, 130))

        def step(i, c):
            return lax.dynamic_update_slice(c, part * i, (0, 40 * i))
        return y, z, lax.fori_loop(0, 5, step, x), x
    x = placed(spec)
    jitted = st.jit(f)
    for _ in range(4):
        y, z, loop, same = jitted(x, PART)
        np.testing.assert_array_equal(y, 2 * DATA)
        np.testing.assert_array_equal(z, updated(2 * DATA, PART, 130))
        want = DATA
        for i in range(5):
            want = updated(want, PART * i, 40 * i)
        np.testing.assert_array_equal(loop, want)
        np.testing.assert_array_equal(same, DATA)
        np.testing.assert_array_equal(x, DATA)




UPDATES = {
    "element": (lambda x, i: x.at[3, i].set(7), lambda x, i: (3, i), "="),
    "column": (lambda x, i: x.at[:, i].add(7), lambda x, i: (slice(None), i), "+"),
    "box": (lambda x, i: x.at[2:40, 100:140].multiply(3),
            lambda x, i: (slice(2, 40), slice(100, 140)), "*"),
    "least": (lambda x, i: x.at[:, 100:140].min(0), lambda x, i: (slice(None), slice(100, 140)),
              "<"),
}


@rows("executor", ["simulated", "per_device"])
@rows("name", UPDATES)
@rows("spec", SPECS)
def test_scatters_into_split_dimensions(spec, name, executor):
    f, where, how = UPDATES[name]
    with st.config.override(shardtrace_engine=executor):
        jitted = st.jit(f)
        for i in (0, 130, 511, 512, -1, -512, -600):
            want = DATA.copy()
            if name in ("box", "least") or -512 <= i < 512:
                at = where(want, i)
                want[at] = {"=": 7, "+": want[at] + 7, "*": want[at] * 3,
                            "<": np.minimum(want[at], 0)}[how]
            for x in (placed(spec), placed(spec)):
                np.testing.assert_array_equal(jitted(x, np.int32(i)), want)
                np.testing.assert_array_equal(x, DATA)


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
@pytest.mark.parametrize("ring", [True, False])
@pytest.mark.parametrize("spec", SPECS[:3], ids=str)
def test_halos_hold_the_rows_of_the_neighbours(spec, ring, executor):
    """Rows of neighbours before and after a block's own, and the rows between two blocks."""
    axes = spec[1]
    n = 8 if axes == ("x", "y") else 4
    right = [(i, (i + 1) % n) for i in range(n if ring else n - 1)]
    left = [(b, a) for a, b in right]

    def body(x):
        before = lax.ppermute(x[:, -3:], axes, right)
        behind = lax.ppermute(x[:, :2], axes, left)
        whole = jnp.concatenate([before, x, behind], 1)
        return whole, whole[:, :-5] - x, jnp.concatenate([x[:, 2:], behind], 1), before

    with st.config.override(shardtrace_engine=executor):
        f = st.jit(st.shard_map(body, mesh=MESH, in_specs=spec, out_specs=spec))
        whole, minus, moved, before = map(np.asarray, f(placed(spec)))
    block = DATA.shape[1] // n
    padded = np.pad(DATA, ((0, 0), (3, 2)), "wrap" if ring else "constant")
    blocks = [padded[:, i * block:(i + 1) * block + 5] for i in range(n)]
    np.testing.assert_array_equal(whole, np.concatenate(blocks, 1))
    np.testing.assert_array_equal(minus, padded[:, :-5] - DATA)
    np.testing.assert_array_equal(moved, padded[:, 5:])
    np.testing.assert_array_equal(before, np.concatenate([b[:, :3] for b in blocks], 1))
