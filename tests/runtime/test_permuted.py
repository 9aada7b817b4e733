"""Groups that read blocks of devices where they were before a `ppermute`."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.context import config
from shardtrace.ir.support import buffer_pool as pool
from shardtrace.runtime.blocks import cores, fusion
from shardtrace.runtime.blocks import frames as block_frames
from shardtrace.runtime.blocks.frames import _in_front
from shardtrace.runtime.calls.permuted import Moves, source_of, starts
from shardtrace.runtime.plans import plan
from shardtrace.sharding import PartitionSpec as P

RIGHT = [(i, (i + 1) % 4) for i in range(4)]
LEFT = [(i, (i - 1) % 4) for i in range(4)]
SWAPPED = [(0, 2), (2, 0), (1, 1), (3, 3)]


@pytest.fixture(scope="module", autouse=True)
def everything_is_large():
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in ((fusion, "ALONE", 1), (fusion, "LARGE", 1),
                                    (block_frames, "BLOCK", 200), (cores, "ENOUGH", 64),
                                    (cores, "CORES", 2), (pool, "SMALLEST", 64)):
            patch.setattr(module, name, value)
        st.clear_caches()
        yield
    st.clear_caches()


def over(mesh, body, specs, out):
    """`body` per device, and how many operands its groups read from elsewhere once it ran."""
    f = st.shard_map(body, mesh=mesh, in_specs=specs, out_specs=out)

    def run(*args):
        found = []
        original = fusion.Blocked

        def noted(members, slots, results, rows, moved):
            found.append(len(moved))
            return original(members, slots, results, rows, moved)
        fusion.Blocked = noted
        try:
            return np.asarray(st.jit(lambda *xs: f(*xs))(*args)), sum(found)
        finally:
            fusion.Blocked = original
    return run


def expected(mesh, body, specs, out, *args):
    """The same without groups, and by a loop over devices."""
    f = st.shard_map(body, mesh=mesh, in_specs=specs, out_specs=out)
    whole, plan.fused = plan.fused, lambda calls, outputs: list(calls)
    before = config.shardtrace_executor
    try:
        one = np.asarray(st.jit(lambda *xs: f(*xs))(*args))
        st.config.update("shardtrace_executor", "per_device")
        other = np.asarray(st.jit(lambda *xs: f(*xs))(*args))
    finally:
        plan.fused = whole
        st.config.update("shardtrace_executor", before)
    np.testing.assert_array_equal(one, other)
    return one


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def line():
    return st.make_mesh((4,), ("X",))


def check(body, *args, moved, mesh=None, specs=P("X"), out=P("X")):
    mesh = mesh or line()
    found, count = over(mesh, body, specs, out)(*args)
    np.testing.assert_array_equal(found, expected(mesh, body, specs, out, *args))
    assert count == moved


def test_neighbours_are_read_in_place():
    def body(x):
        return (lax.ppermute(x, "X", LEFT) + x + lax.ppermute(x, "X", RIGHT)) / 3
    check(body, data(16, 6), moved=2)
    check(body, data(16), moved=2)
    check(body, data(4, 2, 3, 5), moved=2)


def test_in_a_loop_nothing_is_copied_first():
    def turn(i, x):
        return jnp.sin(lax.ppermute(x, "X", LEFT)) + lax.ppermute(x, "X", SWAPPED) * 0.5

    def body(x):
        return lax.fori_loop(0, 5, turn, x)
    check(body, data(8, 10), moved=2)


def test_blocks_that_others_read_too_are_moved():
    def body(x):
        y = lax.ppermute(x * 2, "X", RIGHT)
        return (y + x) @ y.T
    check(body, data(16, 6), moved=0)


def test_blocks_that_do_not_all_arrive_are_moved():
    def body(x):
        return lax.ppermute(x, "X", [(0, 1), (1, 2)]) * 2 + x
    check(body, data(16, 6), moved=0)


def test_rows_of_a_reduction_and_of_other_shapes():
    def softmax(x):
        y = lax.ppermute(x, "X", RIGHT)
        return jnp.exp(y - y.max(1, keepdims=True)) + x
    check(softmax, data(16, 6), moved=1)

    def flat(x):
        return (lax.ppermute(x, "X", RIGHT).reshape(-1) * 2).reshape(3, 8) + 1
    check(flat, data(16, 6), moved=0)           # devices are told apart first


def test_a_vector_that_is_repeated_along_rows_is_moved():
    def body(x, b):
        return jnp.exp(x) + lax.ppermute(b, "X", RIGHT)
    check(body, data(8, 12), data(12), mesh=line(), specs=(P(None, "X"), P("X")),
          out=P(None, "X"), moved=0)


def test_operands_in_another_order_in_memory():
    def body(x):
        y = lax.ppermute(x, "X", LEFT)
        return jnp.tanh(y.T + x.T) * 2
    check(body, data(16, 6), out=P(None, "X"), moved=0)

    def sums(x, y):
        return jnp.sin(lax.ppermute(x, "X", LEFT)) * lax.ppermute(y.T, "X", RIGHT)
    check(sums, data(16, 8), data(8, 16), specs=(P("X"), P(None, "X")), moved=2)


def test_results_are_not_written_over_what_is_still_read():
    def body(x):
        y = x * 2                                       # computed here, and read once: moved
        return jnp.exp(lax.ppermute(y, "X", RIGHT)) + 1
    check(body, data(16, 6), moved=1)


@pytest.mark.parametrize("axis", ["X", "Y"])
def test_axes_in_front_and_behind(axis):
    mesh = st.make_mesh((4, 2), ("X", "Y"))
    n = mesh.shape[axis]

    def body(x):
        return lax.ppermute(x, axis, [(i, (i + 1) % n) for i in range(n)]) * 2 + x
    check(body, data(16, 6), mesh=mesh, specs=P("X", "Y"), out=P("X", "Y"),
          moved=int(axis == "X"))


@settings(max_examples=40, deadline=None)
@given(draw.permutations(range(4)), draw.permutations(range(4)), draw.integers(1, 3),
       draw.sampled_from([(), (3,), (2, 5)]), draw.booleans())
def test_random_permutations(one, two, rows, rest, loop):
    def step(x):
        y = lax.ppermute(x, "X", list(enumerate(one)))
        return jnp.cos(y) + lax.ppermute(x, "X", list(enumerate(two))) * x

    def body(x):
        return lax.fori_loop(0, 3, lambda i, x: step(x), x) if loop else step(x)
    x = data(4 * rows, *rest, seed=rows)
    found, _ = over(line(), body, P("X"), P("X"))(x)
    np.testing.assert_array_equal(found, expected(line(), body, P("X"), P("X"), x))


def test_where_blocks_come_from():
    moves = Moves(4, ((0, 1, 3), (3, 0, 1)))
    assert moves.offsets == [3, -1, -1, -1]
    assert starts([moves, Moves(4, ((0, 2, 2), (2, 0, 2)))], 8) == [0, 2, 4]
    assert source_of((slice(2, 4),), moves.offsets, 2) == (slice(0, 2),)
    assert source_of((1, slice(0, 5)), moves.offsets, 2) == (7, slice(0, 5))
    assert _in_front((2, 4, 6), 8) == (8, 6)
    assert _in_front((16, 3), 8) == (8, 2, 3)
    assert _in_front((6, 4), 4) == (24,)
