"""Rows that devices look up, or add to, where they own them; and what some devices send to all."""
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
TABLE = RNG.normal(size=(32, 6)).astype(np.float32)
IDS = RNG.integers(0, 32, (8, 5)).astype(np.int32)
IDS[0, :3] = 7, 7, 40                       # one twice, one that no device has


def plain_rows(ids, table):
    return np.where((ids < 32)[..., None], table[np.minimum(ids, 31)], 0)


def plain_gradient(ids, table):
    want = np.zeros_like(table)
    np.add.at(want, ids[ids < 32], 2 * table[ids[ids < 32]])
    return want


def where_owned(take, axes="y"):
    def body(ids, table):
        rows = table.shape[0]
        here = ids - lax.axis_index(axes) * rows
        mine = (here >= 0) & (here < rows)
        found = take(table, here, mine)
        return lax.psum(jnp.where(mine[..., None], found, 0), axes)
    return body


WAYS = {
    "clipped": lambda t, i, m: t[jnp.clip(i, 0, t.shape[0] - 1)],
    "zero": lambda t, i, m: t[jnp.where(m, i, 0)],
    "filled": lambda t, i, m: jnp.take(t, i, axis=0),
    "clip": lambda t, i, m: jnp.take(t, i, axis=0, mode="clip"),
}


@rows("executor", ["simulated", "per_device"])
@rows("way", WAYS)
@rows("specs", [(P(), P("y")), (P("x"), P("y")), (P(), P(("x", "y"))),
                (P(), P("y", "x"))])
def test_rows_and_their_gradient(way, specs, executor):
    axes = ("x", "y") if specs[1] == P(("x", "y")) else "y"
    out = P(*specs[0], *(None,) * (2 - len(specs[0])), *specs[1][1:])
    rows = st.shard_map(where_owned(WAYS[way], axes), mesh=MESH, in_specs=specs, out_specs=out)
    with st.config.override(shardtrace_engine=executor):
        np.testing.assert_array_equal(st.jit(rows)(IDS, TABLE), plain_rows(IDS, TABLE))
        got = st.jit(st.grad(lambda t: (rows(IDS, t) ** 2).sum()))(TABLE)
    np.testing.assert_allclose(got, plain_gradient(IDS, TABLE), rtol=1e-5)


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
def test_what_several_devices_find_is_summed(executor):
    def body(ids, table):
        found = table[jnp.clip(ids, 0, 7)]
        return lax.psum(jnp.where((ids + lax.axis_index("y") > 5)[:, None], found, 0), "y")
    f = st.jit(st.shard_map(body, mesh=MESH, in_specs=(P(), P("y")), out_specs=P()))
    ids = np.arange(8, dtype=np.int32)
    want = sum(np.where((ids + d > 5)[:, None], TABLE[8 * d:8 * d + 8], 0) for d in range(4))
    with st.config.override(shardtrace_engine=executor):
        np.testing.assert_allclose(f(ids, TABLE), want, rtol=1e-6)


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
@pytest.mark.parametrize("spec", [P("y"), P(None, "y"), P("x", "y"), P(("x", "y"))])
def test_what_one_device_sends_to_all(spec, executor):
    x = RNG.normal(size=(8, 16)).astype(np.float32)

    def body(x, t):
        return lax.psum(jnp.where(lax.axis_index("y") == t, x, 0), "y")
    f = st.jit(st.shard_map(lambda x, t: (body(x, t[0]), body(x, t[1])), mesh=MESH,
                            in_specs=(spec, P()), out_specs=P("x"), check_vma=False))
    with st.config.override(shardtrace_engine=executor):
        one, none = f(x, np.array([2, 9], np.int32))
    blocks = {P("y"): lambda a: x[4:6], P(None, "y"): lambda a: x[:, 8:12],
              P("x", "y"): lambda a: x[4 * a:4 * a + 4, 8:12],
              P(("x", "y")): lambda a: x[4 * a + 2:4 * a + 3]}
    np.testing.assert_array_equal(one, np.concatenate([blocks[spec](a) for a in range(2)]))
    assert not np.asarray(none).any()


def test_what_some_devices_have_is_summed():
    x = RNG.normal(size=(8, 16)).astype(np.float32)
    f = st.jit(st.shard_map(
        lambda x: lax.psum(jnp.where(lax.axis_index("y") % 2 == 1, x, 0), "y"),
        mesh=MESH, in_specs=P("y"), out_specs=P()))
    np.testing.assert_allclose(f(x), x[2:4] + x[6:8], rtol=1e-6)
