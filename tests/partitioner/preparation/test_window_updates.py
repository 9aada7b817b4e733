"""Boxes inside of a split array, updated and reduced: split as the array is, same results."""
import functools

import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...executors import agree
from ...rows import rows

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


@rows("spec", SPECS)
@rows("where", BOXES)
@rows("how", HOW)
def test_updates_of_boxes_in_sharded_arrays_equal_those_of_numpy(spec, where, how):
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


@rows("spec", SPECS[:3])
@rows("f", [
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
])
def test_others_are_as_before(spec, f):
    want = np.asarray(st.jit(f)(DATA))
    np.testing.assert_array_equal(agree_twice(f, placed(spec)), want)


def received(f, spec, *args, given=None):
    """Bytes that a device receives. given: how x is split, if not as the result is."""
    jitted = st.jit(f, out_shardings=st.NamedSharding(MESH, spec))
    x = placed(given or spec)
    return sum(c.received_bytes for c in st.explain(jitted)(x, *args).collectives)


def test_neighbours_rows_are_all_that_an_update_of_most_rows_needs():
    def f(x):
        return x.at[1:-1].set(x[2:] - x[:-2])
    assert 0 < received(f, P("y")) <= 4 * 24 * 8 * 4


def test_an_update_that_all_devices_have_moves_nothing():
    new = np.ones((14, 22, 8), np.float32)
    assert received(lambda x, new: x.at[1:-1, 1:-1].set(new), P("x", "y"), new) == 0


REDUCED = {
    "rows": (slice(3, 15), slice(None)),
    "an even number of rows": (slice(4, 16), slice(None)),
    "rows and columns": (slice(1, -1), slice(2, 21)),
    "one dimension of two": (slice(None), slice(5, 23), slice(1, 7)),
    "few": (slice(3, 5), slice(1, 7)),
}


@rows("spec", [*SPECS, P()])
@rows("where", REDUCED)
@rows("axis", [0, (0, 1), (1, 2)])
@rows("how", ["sum", "max", "min", "prod", "mean"])
def test_reductions_of_boxes_in_sharded_arrays_equal_those_of_numpy(spec, where, axis, how):
    at = REDUCED[where]
    got = agree(lambda x: getattr(x[at], how)(axis), placed(spec), rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(got, getattr(DATA[at], how)(axis), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("how", ["any", "all", "max", "sum"])
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.complex64], ids=lambda t: t.__name__)
def test_reductions_of_other_dtypes(how, dtype):
    x = (DATA > 0.5) if dtype is np.bool_ else (9 * DATA).astype(dtype)
    if dtype is np.complex64 and how == "max":
        pytest.skip("complex numbers have no order")
    got = agree(lambda x: getattr(x[1:13], how)(0), placed(P("x", "y"), x), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got, getattr(x[1:13], how)(0), rtol=1e-4, atol=1e-4)


def test_rows_left_out_of_a_sum_stay_where_they_are():
    of_rows = functools.partial(received, spec=P(), given=P("y"))
    assert of_rows(lambda x: x[3:15].sum(0)) == of_rows(lambda x: x.sum(0)) > 0
    assert of_rows(lambda x: x[4:].max(0)) == of_rows(lambda x: x.max(0)) > 0


@pytest.mark.parametrize("f", [
    lambda x: (jnp.log(x[1:]) ** 2).sum(0),
    lambda x: jnp.where(x[1:-1] > 1, x[1:-1] * 2, 0.5).sum(),
    lambda x: (jnp.abs(x[1:, 1:] - 3) < 2).any(1),
    lambda x: (x[1:, 2:] - x[1:, :-2]).max(),
    lambda x: (lambda d: d * d - jnp.abs(d))(x[1:, 1:] + 3).sum(),
    lambda x: (lambda d: (d * d).sum(0) + d[0])(x[1:]),
    lambda x: functools.reduce(lambda d, i: d * 0.99 + i, range(1200), x[1:]).sum(),
], ids=range(7))
def test_computation_on_the_rows_of_a_slice(f):
    """What it gives for rows that are left out, here NaN, is not seen."""
    x = np.abs(DATA) + 1
    x[0] = -1
    want = np.asarray(st.jit(f)(x))
    got = agree(f, placed(P("x"), x), rtol=1e-4)
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_computation_on_the_rows_of_a_slice_moves_none():
    assert received(lambda x: (jnp.exp(x[3:]) ** 2).sum(0), P(), given=P("y")) == received(
        lambda x: x.sum(0), P(), given=P("y"))


def test_of_a_dimension_that_is_not_split_rows_are_sliced_before_all_else():
    text = str(st.jit(lambda x: jnp.exp(x[3:16]).sum(0)).lower(
        placed(P(None, "y"))).compile().as_text())
    assert "f32[13,6,8]{V:y} = exp" in text and "place[" not in text


def test_the_gradient_of_a_reduction_of_a_slice():
    got = agree(st.grad(lambda x: (x[3:13].max(0) ** 2).sum()), placed(P("x")))
    want = np.zeros_like(DATA)
    top = DATA[3:13].argmax(0)[None]
    np.put_along_axis(want[3:13], top, 2 * np.take_along_axis(DATA[3:13], top, 0), 0)
    np.testing.assert_allclose(got, want, rtol=1e-5)
