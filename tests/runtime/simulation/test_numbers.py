"""Arrays of one number are given to elementwise calls as that number."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.runtime.plans.draft import recording_plans
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

MESH = st.make_mesh((8,), ("x",))
ROWS = np.linspace(-3, 3, 64 * 1024, dtype=np.float32).reshape(64, 1024)


def split(x):
    return st.device_put(x, NamedSharding(MESH, P("x")))


def local(body, *args):
    return st.shard_map(body, mesh=MESH, in_specs=P("x"), out_specs=P("x"))(*args)


def test_a_masked_block_reads_zero_as_a_number() -> None:
    x = np.tile(ROWS, (4, 1))
    with recording_plans() as told:
        out = st.jit(lambda x: jnp.where(x > 0, x * 2, 0.0))(split(x))
    np.testing.assert_array_equal(out, np.where(x > 0, x * 2, 0))
    text = next(text for what, text in told if what == "planned")
    assert "Blocked" in text
    assert "lambda" not in text


def integers(x):
    which = (x * 2).astype(jnp.int32) % 3
    return lax.select_n(which, jnp.full_like(x, 1.5), x, jnp.zeros_like(x))


CASES = {
    "both cases": lambda x: jnp.where(x > 1, 2.0, jnp.full_like(x, 3.0)) + x,
    "the condition": lambda x: jnp.where(jnp.full(x.shape, True), x, -x),
    "a number that is computed": lambda x: jnp.where(x > 0, x, jnp.full(x.shape, 2.0) * 3 + 1),
    "a number of the data": lambda x: x * jnp.broadcast_to(jnp.abs(x).sum(), x.shape),
    "one of three": integers,
    "bfloat16": lambda x: jnp.where(x > 0, x, 0).astype(jnp.bfloat16) * jnp.ones_like(
        x, jnp.bfloat16),
    "in a loop": lambda x: lax.fori_loop(0, 3, lambda i, y: jnp.where(
        y > i, y, jnp.full(y.shape, i * 1.0)), x),
    "no elements": lambda x: jnp.maximum(x[:0], jnp.zeros((0, x.shape[1]))),
    "a result": lambda x: (jnp.zeros(x.shape) + 1, jnp.where(x > 0, x, jnp.zeros(x.shape))),
    "one row": lambda x: x[:1] + jnp.ones((1, x.shape[1])),
}


@rows("name", CASES)
@rows("rows", [8, 64])
def test_numbers_stand_for_arrays(name: str, rows: int) -> None:
    x = ROWS[:rows, :-rows]
    want = st.jit(CASES[name])(x)
    for f in (CASES[name], lambda x: CASES[name](x * 1.0)):
        for found, wanted in zip(st.tree.leaves(st.jit(f)(split(x))), st.tree.leaves(want),
                                 strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(np.asarray(found, np.float32),
                                       np.asarray(wanted, np.float32), rtol=1e-5)


def test_numbers_beside_values_that_differ_between_devices() -> None:
    def body(x):
        mine = x.sum(0) * (1 + lax.axis_index("x"))
        return jnp.where(mine > 0, mine, jnp.full(mine.shape, 0.5))[None]
    sums = ROWS.reshape(8, 8, 1024).sum(1) * np.arange(1, 9, dtype=np.float32)[:, None]
    np.testing.assert_allclose(st.jit(lambda x: local(body, x))(split(ROWS)),
                               np.where(sums > 0, sums, 0.5), rtol=1e-4)


@pytest.mark.parametrize("silent", [
    lambda x: st.debug.callback(lambda v: None, x),
    lambda x: st.debug.print("{}", x.sum()),
    lambda x: lax.scan(lambda c, _: (c, None), (), None, length=3)], ids=[
        "a callback", "a print", "a loop without results"])
def test_numbers_behind_calls_that_give_nothing(silent, capfd) -> None:
    def f(x):
        silent(x)
        y = x * 2
        silent(y)
        return y < jnp.full(x.shape, 0.5), jnp.maximum(x, jnp.zeros(x.shape))

    below, most = st.jit(f)(split(ROWS))
    np.testing.assert_array_equal(below, ROWS * 2 < 0.5)
    np.testing.assert_array_equal(most, np.maximum(ROWS, 0))
