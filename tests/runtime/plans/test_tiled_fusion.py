"""Groups of calls evaluated in blocks: the same numbers as one call after the other."""
from __future__ import annotations

import contextlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.settings.context import config
from shardtrace.ir.support import threads
from shardtrace.runtime.calls.symbolic import record
from shardtrace.runtime.plans import blocked, generated, tiled_fusion
from shardtrace.runtime.plans.tiling import forms_of
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...executors import forget_plans

F32 = np.dtype(np.float32)


def groups(f, *args):
    """The groups in the plan of a function."""
    found = []
    original = tiled_fusion.Blocked

    def noted(members, *rest):
        found.append([m.eqn.op.name for m in members])
        return original(members, *rest)
    tiled_fusion.Blocked = noted
    try:
        st.jit(f)(*args)
    finally:
        tiled_fusion.Blocked = original
    return found


def both(f, *args):
    """Results with groups and without."""
    one = st.jit(lambda *xs: f(*xs))(*args)
    with st.config.override(shardtrace_skip="fuse"):
        other = st.jit(lambda *xs: f(*xs))(*args)
    return [[np.asarray(x) for x in st.tree.leaves(r)] for r in (one, other)]


def _off(x, y):
    if x.dtype == ml_dtypes.bfloat16:         # whose NaNs numpy does not know
        x, y = x.astype(F32), y.astype(F32)
    np.testing.assert_array_equal(x, y)       # says where; NaNs of either sign are equal
    return True


def assert_same(f, *args):
    """Groups and single calls give the same bits where every result is rounded."""
    with st.config.override(shardtrace_allow_excess_precision=False):
        results = both(f, *args)
    for x, y in zip(*results, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        assert x.tobytes() == y.tobytes() or _off(x, y)


@contextlib.contextmanager
def executor(name):
    before = config.shardtrace_engine
    st.config.update("shardtrace_engine", name)
    try:
        yield
    finally:
        st.config.update("shardtrace_engine", before)


def data(*shape, dtype=np.float32, seed=0):
    x = np.random.default_rng(seed).standard_normal(shape) * 3
    return x.astype(dtype)


# -- what is found ---------------------------------------------------------------------------------

def test_a_softmax_is_one_group(tiny):
    names = groups(lambda x: st.nn.softmax(x), data(16, 8))
    assert len(names) == 1
    assert names[0][0] == "reduce_max" and names[0][-1] == "div"


def test_a_chain_through_a_product_is_two_groups(tiny):
    x = data(8, 8)
    assert groups(lambda x: jnp.tanh(jnp.exp(jnp.sin(x) + 1) @ x) * 2, x) == [
        ["sin", "add", "exp"], ["tanh", "mul"]]


def test_rows_of_shapes_that_do_not_divide_each_other(tiny):
    """A value that is cut in one way, then flat, then in another: rows are single elements."""
    def f(x):
        return jnp.sin(((x * 2).reshape(-1) + 1).reshape(6, 10, 2) - 1) + 1
    assert len(groups(f, data(20, 6))) == 1
    assert_same(f, data(20, 6))
    assert_same(lambda x: f(x.T) * 2, data(6, 20))


def test_a_sum_over_rows_is_part_of_a_group_that_ends_where_it_is_read(tiny):
    def f(x):
        y = x * 2 + 1
        return jnp.exp(y) - y.sum(0)
    assert groups(f, data(8, 8)) == [["mul", "add", "exp", "reduce_sum"], ["sub"]]


def test_small_values_are_computed_one_call_after_the_other():
    assert groups(lambda x: jnp.tanh(x) * 2, data(64, 64)) == []


@pytest.mark.parametrize(("function", "kinds"), [
    (lambda x: np.reciprocal(np.sqrt(x)), ["call", "call"]),
    (lambda x: np.where(x > np.float32(0), x, np.zeros((), F32)), ["call", "where"]),
    (lambda x: np.add.reduce(x, axis=(1,), dtype=F32).reshape(4, 1) + x,
     ["reduce", "reshape", "call"]),
    (lambda x: x.astype(np.float64).astype(np.float32), ["cast", "cast"]),
])
def test_a_recording_has_the_numpy_calls(function, kinds):
    x = np.ones((4, 6), np.float32)
    out = function(x)
    found = record(function, (x.shape, out.shape), (x.dtype, out.dtype))
    assert [s.kind for s in found.steps] == kinds


@pytest.mark.parametrize("function", [
    lambda x: x[::-1], lambda x: x if x.min() > 0 else -x, lambda x: np.cumsum(x, 0),
    lambda x: np.asarray(x) + 1, lambda x: x.T, lambda x: np.add(x, 1, where=x > 0),
    lambda x: x + np.arange(6, dtype=F32)])
def test_what_is_no_such_call_is_not_recorded(function):
    assert record(function, ((4, 6), (4, 6)), (F32, F32)) is None


def test_rows_are_what_a_reduction_leaves():
    found = record(lambda x: np.maximum.reduce(x, axis=(2,)), ((4, 6, 5), (4, 6)), (F32, F32))
    assert forms_of(found, 4) and forms_of(found, 24)
    assert not forms_of(found, 6) and not forms_of(found, 120)


# -- same results ----------------------------------------------------------------------------------

UNARY = [jnp.tanh, jnp.exp, jnp.abs, jnp.negative, lax.rsqrt, lax.logistic, jnp.square,
         lambda x: x ** 3, lambda x: x - x.max(-1, keepdims=True), jnp.isfinite,
         lambda x: x / x.sum(-1, keepdims=True), lambda x: lax.erf(x), lambda x: jnp.clip(x, -1, 1),
         lambda x: x * x.min(), lambda x: x + x.max(0), lambda x: x.T.reshape(x.shape),
         lambda x: x.astype(jnp.float16).astype(x.dtype), lambda x: x.reshape(-1).reshape(x.shape),
         lambda x: jnp.where(x > 0, x, 0.5), lambda x: jnp.broadcast_to(x[:, :1], x.shape)]
BINARY = [jnp.add, jnp.multiply, jnp.maximum, jnp.subtract, lambda x, y: x / y,
          lambda x, y: jnp.where(x > y, x, y), lambda x, y: jnp.where(x < 0, y, x),
          lambda x, y: x * (y > 0), lambda x, y: x + y.sum(-1, keepdims=True)]


SUMS = (10, len(UNARY) + 8)


@settings(max_examples=60, deadline=None)
@given(draw.data())
def test_random_programs_have_the_same_bits_in_blocks(tiny_once, data_):
    assert_same(*random_program(data_))


def random_program(data_):
    """A function of a chain of ops, and arguments for it."""
    pick = data_.draw
    shape = pick(draw.sampled_from([(16, 12), (3, 5, 7), (1, 40), (40, 1), (2, 30)]))
    dtype = pick(draw.sampled_from([np.float32, np.float32, np.float64, np.float16,
                                    ml_dtypes.bfloat16]))
    steps = pick(draw.lists(draw.tuples(
        draw.integers(0, len(UNARY) + len(BINARY) - 1), draw.integers(0, 99),
        draw.integers(0, 99)), min_size=1, max_size=12))
    kept = pick(draw.integers(1, 3))

    def f(x, row, y):
        pool = [x, y, row]
        for which, i, j in steps:
            a, b = pool[i % len(pool)], pool[j % len(pool)]
            if which < len(UNARY):
                if a.ndim == len(shape):
                    pool.append(UNARY[which](a).astype(x.dtype))
            else:
                pool.append(BINARY[which - len(UNARY)](a, b).astype(x.dtype))
        return tuple(pool[-kept:])

    x = data(*shape, dtype=dtype)
    x.reshape(-1)[:3] = np.nan, np.inf, -np.inf
    y = data(*shape, dtype=dtype, seed=1)
    if not any(which in SUMS for which, _, _ in steps) and pick(draw.booleans()):
        y = np.asfortranarray(y)        # sums would be added in the order of memory
    return f, x, data(shape[-1], dtype=dtype, seed=2), y


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1,), (5, 3)])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_, np.complex64])
def test_other_dtypes_and_empty_arrays(tiny, shape, dtype):
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)

    def f(x):
        y = jnp.where(x == x, x, x)
        return (y, y != x) if dtype == np.bool_ else (y * x + y, y - 1 + x)
    assert_same(f, x)


def test_operands_in_other_orders_and_strides(tiny):
    x, y = data(12, 10).T, data(20, 24)[::2, ::2]
    assert_same(lambda x, y: (jnp.tanh(x) * y[:10, :12] + x, x * 2), x, y)


def test_large_arrays_on_eight_devices():
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    x = st.device_put(data(512, 384), NamedSharding(mesh, P("x", "y")))
    r = st.device_put(data(384, seed=1), NamedSharding(mesh, P("y")))

    def f(x, r):
        c = x - x.mean(-1, keepdims=True)
        out = c * lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5) * r
        return jnp.where(out > 0, out, jnp.exp(out)), out.max(0)
    assert_same(f, x, r)


def test_an_error_in_a_block_names_the_equation(tiny, monkeypatch):
    def broken(*args, out=None):
        raise FloatingPointError("broken")
    monkeypatch.setattr(blocked, "_in_block", lambda kernel, forms, rows: with_ufunc(
        original(kernel, forms, rows), broken))
    with pytest.raises(FloatingPointError, match="broken") as info:
        st.jit(lambda x: jnp.tanh(x) + 1)(data(32, 32))
    assert any("while running `tanh`" in note for note in info.value.__notes__)


original = blocked._in_block


def with_ufunc(kernel, function):
    recording = kernel.recording
    kernel.set_recording(recording._replace(steps=tuple(
        [step._replace(function=function) for step in recording.steps])))
    return kernel


def test_equal_groups_share_what_is_written(tiny, monkeypatch):
    sources = []
    original = generated._code
    monkeypatch.setattr(generated, "_code", lambda s: (sources.append(s), original(s))[1])

    def f(leaves):
        return [jnp.tanh(x @ x) * 2 + 1 for x in leaves]
    leaves = [data(32, 32, seed=i) for i in range(5)]
    st.jit(f)(leaves)
    assert len(sources) == 1


def test_both_executors_agree_on_groups(tiny):
    x = data(24, 16)

    def f(x):
        return st.nn.softmax(x * 2 + x.sum(0)), jnp.cumsum(x, 1) * 2
    one = st.jit(f)(x)
    with executor("per_device"):
        other = st.jit(lambda x: f(x))(x)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


# -- a lone step -----------------------------------------------------------------------------------

@pytest.mark.parametrize("f", [
    lambda x: x + 1, lambda x: x * x, lambda x: -x, lambda x: 2 - x, lambda x: x > 0.5,
    lambda x: x[::2] * 2, lambda x: x.T + 1, lambda x: x + x.T, lambda x: x[:1] * x,
    lambda x: x[:, :1] + 1])
def test_a_lone_step_gives_what_numpy_gives_however_operands_lie(f):
    x = data(768, 768)                  # half of it is still evaluated in blocks
    run = st.jit(f)
    for operand in (x, x.T, np.asfortranarray(x)):
        want = f(operand)
        for _ in range(4):
            assert np.array_equal(run(operand), want)


@pytest.mark.parametrize("low, high", [(-1, 1), (0, 6), (-0.0, 0.0), (np.nan, 1), (1, -1),
                                       (-np.inf, np.nan)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_cutting_to_a_range_is_one_step_with_the_bits_of_two(tiny, low, high, dtype):
    special = np.array([np.nan, 0., -0., 1, -1, np.inf, -np.inf, 3.5, 1e-7, -7], dtype)
    x = np.tile(special, 20)
    low, high = dtype(low), dtype(high)
    wide = np.float32
    want = np.minimum(wide(high), np.maximum(wide(low), x.astype(wide))).astype(dtype)
    for f in (lambda x: jnp.clip(x, low, high), lambda x: jnp.clip(x, low, high) * 1,
              lambda x: (lambda y: jnp.minimum(high, y) + y * 0)(jnp.maximum(low, x)),
              lambda x: [jnp.minimum(b, jnp.maximum(low, x)) for b in (high, high)][1],
              lambda x: (lambda y: (jnp.minimum(high, y), jnp.minimum(dtype(1), y)))(
                  jnp.maximum(low, x))[0]):
        got = np.asarray(st.jit(f)(x))
        np.testing.assert_array_equal(got, np.where(np.isinf(x), got, want))
    got = np.asarray(st.jit(lambda x: jnp.clip(x, low, high))(x))
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("count", [40, 40_000, 400_000])
def test_cutting_arrays_of_any_size_to_a_range(count):
    x = np.linspace(-3, 3, count, dtype=np.float32)
    f = st.jit(lambda x, low: jnp.clip(x, low, 1))
    for _ in range(4):
        np.testing.assert_array_equal(f(x, np.float32(-2)), np.clip(x, -2, 1))


def test_a_lone_step_of_a_dying_operand_is_written_over_it():
    x = data(512, 1024)
    run = st.jit(lambda x: jnp.maximum(x @ x.T, 0.5))
    for _ in range(4):
        np.testing.assert_array_equal(run(x), np.maximum(x @ x.T, np.float32(0.5)))


@pytest.mark.parametrize("view", [lambda o: o.reshape(40, 2, 20),
                                  lambda o: lax.bitcast_convert_type(o, jnp.int32)])
def test_an_operand_is_not_written_over_while_a_view_of_it_is_read(tiny, view):
    def f(x):
        o = x @ x.T
        same = view(o)
        return jnp.tanh(o), same * 2
    assert_same(f, data(40, 40))


def test_rows_of_two_sizes_read_one_number_of_each_device(tiny):
    def cut(x, y, low):
        low = low.reshape(())
        return lax.clamp(low, x, np.float32(9)), lax.clamp(low, y, np.float32(9))

    f = st.shard_map(cut, mesh=st.make_mesh((8,), ("X",)), in_specs=P("X"), out_specs=P("X"))
    x, low = np.arange(32, dtype=np.float32).reshape(8, 4) / 8, np.arange(8, dtype=np.float32)
    args = x, x.reshape(32, 1), low         # 1 x 4 and 4 x 1 on each device
    a, b = st.jit(f)(*args)
    np.testing.assert_array_equal(a, np.clip(x, low[:, None], 9))
    np.testing.assert_array_equal(b, np.clip(x, low[:, None], 9).reshape(32, 1))


@pytest.mark.parametrize(("width", "buffer"), [(1000, 992), (20_000, 8192), (500, 0)])
def test_numpy_copies_no_more_than_a_row_of_what_it_repeats(monkeypatch, width, buffer):
    x, row = data(200_000 // width, width), data(width, seed=1)
    used, real = [], np.setbufsize
    monkeypatch.setattr(np, "setbufsize", lambda n: used.append(n) or real(n))

    def f(x, row):
        y = (x - x.sum(-1, keepdims=True) * 0.5) * row
        return y / (abs(y).max(-1, keepdims=True) + 1)
    results = st.jit(f)(x, row)
    assert {*used} == ({buffer, 8192} if buffer else set()) and np.getbufsize() == 8192
    monkeypatch.setattr(blocked, "LOOP", 1 << 40)
    st.clear_caches()
    np.testing.assert_array_equal(results, st.jit(f)(x, row))


TOTALS = [
    lambda x: (x * 2 + 1).sum(0), lambda x: (x * 2 + 1).sum(), lambda x: abs(x + 1).max(0),
    lambda x: (x - 1).min(), lambda x: (x / 8 + 1).prod((0, 1)),
    lambda x: ((x > 1) & (x < 2)).any(0),
    lambda x: (x * x).reshape(-1).sum(), lambda x: (x.T * 2).sum(1), lambda x: (x * 2).sum((0, 1)),
    lambda x: (lambda y: (y.sum(0), y.max((0, 2)), jnp.sin(y) + 1))(x * 2)]


@pytest.mark.parametrize("f", TOTALS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_totals_are_those_of_all_rows(tiny, f, dtype):
    for one, other in zip(*both(f, data(30, 5, 7, dtype=dtype)), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("f", TOTALS)
def test_totals_have_the_same_bits_on_any_number_of_cores(tiny, monkeypatch, f):
    x, found = data(30, 5, 7), []
    monkeypatch.setattr(threads, "free_cores", lambda: threads.CORES)
    for cores in (1, 2, 5):
        monkeypatch.setattr(threads, "CORES", cores)
        forget_plans()
        found.append([x.tobytes() for x in map(np.asarray, st.tree.leaves(st.jit(f)(x)))])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(("f", "count"), [
    (lambda x: (lambda y: (y.sum(0), jnp.sin(y) + 1))(x * 2), 1),
    (lambda x: (lambda y: (jnp.cos(y.sum(0) * 2), jnp.ones(1000) * 2, y * y - 1))(x * 2), 1),
    (lambda x: (lambda y: jnp.sin(y - y.sum(0)) * y)(x * 2 + 1), 2)])       # one sum is needed
def test_what_reads_totals_waits_behind_what_does_not(tiny, monkeypatch, f, count):
    monkeypatch.setattr(tiled_fusion, "LARGE", 2000)
    x = data(100, 1000)
    assert len(groups(f, x)) == count
    for one, other in zip(*both(f, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-3)
