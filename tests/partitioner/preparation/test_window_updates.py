"""Updates of a box inside of a split array: split as the array is, same results."""
import functools

import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...executors import agree

MESH = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(16, 24, 8)).astype(np.float32)
SPECS = [P("x"), P(None, "y"), P("x", "y"), P(("x", "y"), None, None), P("y", None, "x")]
BOXES = {
    "inside": (slice(1, -1), slice(2, -1)),
    "in all": (slice(3, 9), slice(5, 20), slice(1, 7)),
    "rows": (slice(5, 12), slice(None), slice(1, 3)),
    "one row": (7, slice(1, -1)),
    "one column": (slice(1, -1), 5),
    "last": (slice(1, -1), slice(None), -1),
}
HOW = {"set": lambda a, b: b, "add": np.add, "multiply": np.multiply, "min": np.minimum}


agree_twice = functools.partial(agree, runs=2)      # arguments stay what they were


def placed(spec, x=DATA):
    return st.device_put(x, st.NamedSharding(MESH, spec))


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("where", BOXES)
@pytest.mark.parametrize("how", HOW)
def test_boxes(spec, where, how):
    at = BOXES[where]
    part = RNG.normal(size=DATA[at].shape).astype(np.float32)
    want = DATA.copy()
    want[at] = HOW[how](want[at], part)
    x = placed(spec)
    got = agree_twice(lambda x, part: getattr(x.at[at], how)(part), x, part)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(x, DATA)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_what_is_written_is_written_over_zeros_too(spec):
    def step(i, x):
        inner = x[:-2, 1:-1, :-1] + x[2:, 1:-1, :-1]
        return jnp.zeros_like(x).at[1:-1, 1:-1, 1:].set(inner) + 0.5 * x
    want = DATA
    for _ in range(3):
        inner = want[:-2, 1:-1, :-1] + want[2:, 1:-1, :-1]
        want = np.float32(0.5) * want
        want[1:-1, 1:-1, 1:] += inner
    got = agree_twice(lambda x: lax.fori_loop(0, 3, step, x), placed(spec))
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_in_a_loop_nothing_is_written_over_that_is_read_later(spec):
    def f(x):
        def step(i, c):
            new = c.at[1:-1, 1:-1].set(0.5 * (c[:-2, 1:-1] + c[2:, 1:-1]))
            return new.at[2:4, 3:-3].add(c[3:5, 3:-3])
        return lax.fori_loop(0, 30, step, x) + x
    want = DATA
    for _ in range(30):
        new = want.copy()
        new[1:-1, 1:-1] = np.float32(0.5) * (want[:-2, 1:-1] + want[2:, 1:-1])
        new[2:4, 3:-3] += want[3:5, 3:-3]
        want = new
    np.testing.assert_allclose(agree_twice(f, placed(spec)), want + DATA, rtol=1e-5)


@pytest.mark.parametrize("spec", SPECS[:3], ids=str)
@pytest.mark.parametrize("f", [
    lambda x: x.at[jnp.arange(3, 9), 2:7].set(1.5),
    lambda x: x.at[jnp.array([3, 9, 4]), 2:7].set(1.5),
    lambda x: x.at[jnp.array([3, 4, 4]), 2:7].add(1.5),
    lambda x: x.at[::2, 1:-1].multiply(1.5),
    lambda x: x.at[jnp.arange(12, 19), 2:7].set(1.5),
    lambda x: x.at[jnp.arange(-3, 2), 2:7].set(1.5),
    lambda x: x.at[20:, 2:7].set(1.5),
    lambda x: x.at[jnp.arange(4), jnp.arange(4)].set(1.5),
    lambda x: x.at[5:1:-1, 3:].set(x[2:6, 3:]),
    lambda x: x.astype(jnp.bfloat16).at[1:-1, 1:-1].add(0.3).astype(jnp.float32),
    lambda x: (x > 0).at[1:-1, 1:-1].set(False).astype(jnp.float32),
    lambda x: (x * 9).astype(jnp.int32).at[1:-1, 1:-1].max(3).astype(jnp.float32),
], ids=range(12))
def test_others_are_as_before(spec, f):
    want = np.asarray(st.jit(f)(DATA))
    np.testing.assert_array_equal(agree_twice(f, placed(spec)), want)


def received(f, spec, *args):
    """Bytes that a device receives."""
    jitted = st.jit(f, out_shardings=st.NamedSharding(MESH, spec))
    return sum(c.received_bytes for c in st.explain(jitted)(placed(spec), *args).collectives)


def test_neighbours_rows_are_all_that_an_update_of_most_rows_needs():
    def f(x):
        return x.at[1:-1].set(x[2:] - x[:-2])
    assert 0 < received(f, P("y")) <= 4 * 24 * 8 * 4


def test_an_update_that_all_devices_have_moves_nothing():
    new = np.ones((14, 22, 8), np.float32)
    assert received(lambda x, new: x.at[1:-1, 1:-1].set(new), P("x", "y"), new) == 0
