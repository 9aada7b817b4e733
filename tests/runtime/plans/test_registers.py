"""Registers of a block: one for each value that is alive, none for what a result has room for."""
from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.support import buffer_pool, threads
from shardtrace.runtime.calls.symbolic import record
from shardtrace.runtime.plans import blocked, registers

X, Y = (np.random.default_rng(i).normal(size=(1024, 512)).astype(np.float32) for i in (1, 2))
pytestmark = pytest.mark.usefixtures("planned_anew")


def bodies(f, *args, monkeypatch):
    """What is written out for the groups of a function, which gives the same as without groups."""
    found, original = [], blocked.written_out
    monkeypatch.setattr(blocked, "written_out",
                        lambda *rest: (found.append(original(*rest)), found[-1])[1])
    one = st.jit(f)(*args)
    with st.config.override(shardtrace_skip="fuse"):
        other = st.jit(lambda *xs: f(*xs))(*args)
    for x, y in zip(st.tree.leaves(one), st.tree.leaves(other), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
    return found


BLOCK = 4 * blocked.BLOCK


@pytest.mark.parametrize(("f", "blocks"), [
    (lambda x, y: jnp.exp(jnp.tanh(x * 2) + 1) * 3, 0),             # all in the result's
    (lambda x, y: jnp.exp(x) * jnp.tanh(x) + jnp.sin(x), 1),
    (lambda x, y: [jnp.exp(x + y) * 2, jnp.tanh(x - y) * 2], 0),    # each in its own
    (lambda x, y: jnp.tanh(x + 1) * y, 0),
    (lambda x, y: jnp.where(x > 0.5, x * 2, 1), 1.25)])      # and a byte for each condition
def test_a_block_has_a_register_for_each_value_that_is_alive(f, blocks, monkeypatch):
    (body,) = bodies(f, X, Y, monkeypatch=monkeypatch)
    assert body.size == blocks * BLOCK


@pytest.mark.parametrize("f", [
    lambda x: jnp.where(x > 0.5, x * 2, 1), lambda x: x.astype(np.float16),
    lambda x: lax.select(X > 0, x, X)])
def test_what_is_several_numpy_calls_is_computed_in_blocks_even_alone(f, monkeypatch):
    x = np.concatenate([X, X])
    monkeypatch.setitem(globals(), "X", x)
    (body,) = bodies(f, x, monkeypatch=monkeypatch)
    assert body.size <= 4 * BLOCK


@pytest.mark.parametrize("f", [
    lambda x, y: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * y,
    lambda x, y: (lax.bitcast_convert_type(x * y, np.int32) >> 3) * 2,
    lambda x, y: jnp.where((y.max(-1, keepdims=True) > 3), x * 2, y + 1) * x,
    lambda x, y: (lambda z: jnp.tanh(x * 3) * z + x)(x @ x.T @ y),      # may be written over z
    lambda x, y: [x.astype(np.float16) * 2, (x * y).astype(jnp.bfloat16), x > y],
    lambda x, y: (lambda z: [z, z.reshape(-1), z.reshape(-1) * 2, z + y])(jnp.tanh(x) * y)])
def test_blocks_give_what_whole_arrays_do(f, monkeypatch):
    assert bodies(f, X, Y, monkeypatch=monkeypatch)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int8, jnp.bfloat16])
@pytest.mark.parametrize(("f", "by_bits"), [
    (lambda x, y: jnp.where(x > y, x, 0) * y, False),
    (lambda x, y: jnp.where(x > y, 0, x) * y, False),
    (lambda x, y: jnp.where(x > y, 0, 0) + x * y, False),
    (lambda x, y: jnp.where(x > y[:, :1], x, 0) * y, False),
    (lambda x, y: lax.select(x > y, x + x, lax.full_like(x, 0)), False),
    (lambda x, y: jnp.where(x > y, x * 2, y - y) * 2, True),           # zeros that are computed
    (lambda x, y: jnp.where(x > y, x, 1) * y, True)])
def test_a_selection_beside_zero_is_one_step(f, by_bits, dtype, monkeypatch):
    x, y = (np.where(np.abs(v) > 1.5, np.nan, v * 9) if dtype in (np.float32, np.float64) else v * 9
            for v in (X, Y))
    with np.errstate(invalid="ignore"):
        x, y = x.astype(dtype), y.astype(dtype)
    found, original = [], registers.by_bits
    monkeypatch.setattr(registers, "by_bits", lambda *xs: (found.append(1), original(*xs))[1])
    monkeypatch.setattr(registers, "_recorded", record)
    with st.config.override(enable_x64=True):
        assert bodies(f, x, y, monkeypatch=monkeypatch)
    assert bool(found) is by_bits


def test_a_selection_beside_a_negative_zero_keeps_its_sign(monkeypatch):
    assert bodies(lambda x, y: jnp.where(x > y, x, -0.0) * 2, X, Y, monkeypatch=monkeypatch)


@pytest.mark.usefixtures("only_own_objects")
@pytest.mark.parametrize("count", [1, 2])
def test_registers_come_from_the_pool_and_go_back_to_it(count, monkeypatch):
    monkeypatch.setattr(threads, "ENOUGH", 1)
    monkeypatch.setattr(threads, "CORES", count)
    # a pool of its own: arrays of other tests that die meanwhile go back to theirs
    monkeypatch.setattr(buffer_pool, "POOL", buffer_pool.BufferPool())
    f = st.jit(lambda x: jnp.exp(x) * jnp.tanh(x) + jnp.sin(x) * jnp.cos(x))
    f(X), f(X)
    gc.collect()
    buffer_pool.POOL.clear()
    for anew in (X.nbytes + count * 2 * BLOCK, (count - 1) * 2 * BLOCK):    # one may have done all
        tracemalloc.start()
        try:
            f(X)
            assert tracemalloc.get_traced_memory()[1] <= anew + BLOCK // 4
        finally:
            tracemalloc.stop()
    assert buffer_pool.POOL.kept <= X.nbytes + count * 2 * BLOCK
