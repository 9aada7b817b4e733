"""Windows of gathers and scatters along split dimensions: each device has or writes its part."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

from ..agreement import agree

X = np.arange(64 * 6, dtype=np.float32).reshape(64, 6)


def rows(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 6)).astype(np.float32)


@pytest.mark.parametrize("f, others", [
    (lambda a, b: jnp.asarray(a).at[0:3].set(b), [rows(3)]),              # within one block
    (lambda a, b: jnp.asarray(a).at[5:37].set(b), [rows(32)]),            # across blocks
    (lambda a, b: jnp.asarray(a).at[3:9].add(b), [rows(6)]),
    (lambda a, b: jnp.asarray(a).at[3:9].multiply(b), [rows(6)]),
    (lambda a, b: jnp.asarray(a).at[3:9].max(b), [rows(6)]),
    (lambda a, b: jnp.asarray(a).at[3:9, 1:4].set(b), [rows(6)[:, :3]]),
    (lambda a, b: jnp.asarray(a).at[63:20:-3].set(b), [rows(15)]),
    (lambda a: jnp.asarray(a).at[:, 2:4].set(0.), []),
    (lambda a: jnp.asarray(a).at[-1].set(7.), []),
])
def test_an_update_that_all_have_is_written_without_an_exchange(f, others):
    assert agree(f, [X, *others], [("x",)] + [()] * len(others), ("x",)) == 0


WRITES = {"scatter": lax.scatter, "scatter_add": lax.scatter_add, "scatter_max": lax.scatter_max}
MODES = ("clip", "fill")


@pytest.mark.parametrize("spec, sizes", [(("x",), (8,)), (("x", "y"), (4, 2)),
                                         ((("y", "x"),), (2, 4))])
@given(name=draw.sampled_from(sorted(WRITES)), mode=draw.sampled_from(MODES),
       size=draw.integers(1, 40), width=draw.integers(1, 6),
       starts=draw.lists(draw.tuples(draw.integers(-5, 70), draw.integers(-1, 6)),
                         min_size=1, max_size=4))
@settings(max_examples=15, deadline=None)
def test_windows_anywhere_are_written(spec, sizes, name, mode, size, width, starts):
    numbers = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
    updates = np.random.default_rng(1).integers(-9, 9, (len(starts), size, width)) \
        .astype(np.float32)

    def f(a, i, u):
        return WRITES[name](a, i, u, numbers, mode=mode)

    moved = agree(f, [X, np.array(starts, np.int32), updates], [spec, (), ()], spec, sizes)
    assert moved == 0


@pytest.mark.parametrize("spec, sizes", [(("x",), (8,)), (("x", "y"), (4, 2))])
@given(mode=draw.sampled_from(MODES), size=draw.integers(1, 40), width=draw.integers(1, 6),
       starts=draw.lists(draw.tuples(draw.integers(-5, 70), draw.integers(-1, 6)),
                         min_size=1, max_size=4))
@settings(max_examples=15, deadline=None)
def test_windows_anywhere_are_read(spec, sizes, mode, size, width, starts):
    numbers = lax.GatherDimensionNumbers((0, 2), (), (0, 1))    # rows before the queries

    def f(a, i):
        return lax.gather(a, i, numbers, (size, width), mode=mode)

    agree(f, [X, np.array(starts, np.int32)], [spec, ()], (), sizes)


def test_few_rows_at_many_starts_are_summed_not_gathered():
    def f(a, starts):
        return st.vmap(lambda i: lax.dynamic_slice_in_dim(a, i, 2, 0))(starts)

    starts = np.array([3, 60, 70, -2], np.int32)
    assert agree(f, [X, starts], [("x",), ()], ()) < X.nbytes * 7 // 8


def test_a_window_that_starts_at_no_index_begins_at_the_first_row():
    numbers = lax.GatherDimensionNumbers((0, 1), (), (1,))
    agree(lambda a, i: lax.gather(a, i, numbers, (20, 2), mode="clip"),
          [X, np.array([3], np.int32)], [("x",), ()], ())


@pytest.mark.parametrize("f", [
    lambda a: jnp.sum(jnp.asarray(a)[5:37] ** 3), lambda a: jnp.sum(jnp.asarray(a)[5] ** 3),
])
def test_derivatives_of_parts(f):
    agree(lambda a: st.grad(f)(a), [X], [("x",)], ("x",))


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize("dtype", [np.uint32, np.int8, np.uint8])
def test_positions_of_any_dtype(mode, dtype):
    places = np.array([[0], [61], [127], [np.iinfo(dtype).max]], dtype)
    numbers = lax.GatherDimensionNumbers((1, 2), (), (0,))
    agree(lambda a, i: lax.gather(a, i, numbers, (4, 6), mode=mode), [X, places], [("x",), ()], ())
    updates = np.ones((4, 4, 6), np.float32)
    written = lax.ScatterDimensionNumbers((1, 2), (), (0,))
    agree(lambda a, i, u: lax.scatter_add(a, i, u, written, mode=mode), [X, places, updates],
          [("x",), (), ()], ("x",))
    agree(lambda a, i: lax.dynamic_slice(a, (i,), (4,)), [X[:, 0], places[2, 0]], [("x",), ()],
          ())


@pytest.mark.parametrize("start", [-70, -1, 0, 7, 8, 31, 63, 99])
@pytest.mark.parametrize("count", [1, 2])
def test_a_cache_that_is_split_where_it_is_written_moves_nothing(start, count):
    def write(cache, new, i):
        return lax.dynamic_update_slice_in_dim(jnp.asarray(cache), new, i, 0)

    expected = X.copy()
    first = min(max(start + 64 if start < 0 else start, 0), 64 - count)
    expected[first:first + count] = rows(count)
    mesh = st.make_mesh((8,), ("x",))
    cache = st.device_put(X, st.NamedSharding(mesh, st.P("x")))
    compiled = st.jit(write).lower(cache, rows(count), np.int32(start)).compile()
    np.testing.assert_array_equal(compiled(cache, rows(count), np.int32(start)), expected)
    assert not compiled.collectives()
    assert agree(write, [X, rows(count), np.int32(start)], [("x",), (), ()], ("x",)) == 0
    if count == 1:          # whether a row is in the block is a matter of two numbers
        assert {"iota", "gather"}.isdisjoint(compiled.program.op_names)
