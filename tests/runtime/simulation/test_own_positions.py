"""Lookups of which each device takes those in its block, by hand and by the partitioner."""
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
TABLE = RNG.normal(size=(64, 8)).astype(np.float32)
WHOLE = np.round(9 * TABLE)             # sums of which are exact
ASKED = RNG.integers(0, 64, (8, 12)).astype(np.int32)
BEYOND = RNG.integers(-90, 90, (8, 12)).astype(np.int32)


def placed(x, spec):
    return st.device_put(x, st.NamedSharding(MESH, spec))


def by_hand(start=lambda me, n: me * n, index=lambda k, ok, n: jnp.where(ok, k, 0),
            inside=lambda k, n: (k >= 0) & (k < n), axes="y", asked=P("x")):
    def body(table, i):
        n = table.shape[0]
        k = i - start(lax.axis_index(axes), n)
        ok = inside(k, n)
        return lax.psum(jnp.where(ok[..., None], table[index(k, ok, n)], 0), axes)
    return st.shard_map(body, mesh=MESH, in_specs=(P(axes), asked), out_specs=asked,
                        check_vma=False)


def lookup(i):
    return np.where(((i >= 0) & (i < 64))[..., None], TABLE[np.clip(i, 0, 63)], 0)


@rows("asked", [ASKED, BEYOND])
@rows("axes, spec", [
    ("y", P("x")), ("y", P(None, "x")), ("x", P("y")), (("x", "y"), P()), (("y", "x"), P())])
@rows("index", [
    lambda k, ok, n: jnp.where(ok, k, 0), lambda k, ok, n: jnp.clip(k, 0, n - 1),
    lambda k, ok, n: jnp.where(ok, k, n - 1)])
def test_masked_lookups_written_by_hand_give_the_rows_of_the_table(index, axes, spec, asked):
    f = by_hand(index=index, axes=axes, asked=spec)
    np.testing.assert_array_equal(agree(f, TABLE, asked), lookup(asked))


@pytest.mark.parametrize("f", [
    by_hand(start=lambda me, n: me * n + 1), by_hand(start=lambda me, n: me * (n - 1)),
    by_hand(start=lambda me, n: me), by_hand(start=lambda me, n: (3 - me) * n),
    by_hand(inside=lambda k, n: (k >= 0) & (k < n - 1)),
    by_hand(inside=lambda k, n: (k >= 1) & (k < n)), by_hand(inside=lambda k, n: k >= 0),
    by_hand(inside=lambda k, n: (k >= 0) | (k < n)),
    by_hand(index=lambda k, ok, n: jnp.where(ok, 0, k)),
    by_hand(index=lambda k, ok, n: jnp.where(ok, n - 1 - k, 0)),
    by_hand(index=lambda k, ok, n: jnp.clip(k, 0, n - 2)),
    by_hand(index=lambda k, ok, n: jnp.clip(k, 1, n - 1)),
    by_hand(index=lambda k, ok, n: k % n),
], ids=range(13))
def test_other_blocks_and_masks(f):
    agree(f, WHOLE, ASKED)
    agree(f, WHOLE, BEYOND)


@rows("asked", [ASKED, BEYOND])
@rows("spec", [P("y"), P(("x", "y")), P("y", "x"), P(None, "y")])
@rows("f", [
    lambda e, i: e[i], lambda e, i: jnp.take(e, i, axis=0),
    lambda e, i: e.at[i].get(mode="fill", fill_value=7), lambda e, i: e.at[i].get(mode="clip"),
    lambda e, i: e[i[:, 0]], lambda e, i: e[:, 2][i], lambda e, i: e[i[0, 0]],
    lambda e, i: e[i % 64, i % 8]])
def test_split_by_the_partitioner(f, spec, asked):
    want = np.asarray(st.jit(f)(TABLE, asked))
    for at in (P(), P("x"), P(None, "x")):
        np.testing.assert_array_equal(agree(f, placed(TABLE, spec), placed(asked, at)), want)


def test_the_gradient_of_a_lookup():
    def f(e, i):
        return (e[i] ** 2).sum()
    got = agree(lambda e, i: st.grad(f)(e, i), placed(TABLE, P("y")), placed(ASKED, P("x")))
    want = 2 * TABLE * np.bincount(ASKED.reshape(-1), minlength=64)[:, None]
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "bool", "bfloat16", "uint8"])
def test_lookups_give_the_rows_of_tables_of_every_dtype(dtype):
    table = np.asarray(jnp.asarray(TABLE * 9, dtype))
    got = agree(lambda e, i: e[i], placed(table, P("y")), ASKED.astype(np.uint8))
    np.testing.assert_array_equal(got, table[ASKED])
