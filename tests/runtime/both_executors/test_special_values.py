"""NaN, infinities and what is out of range: the same of one call, of many, in blocks, and alone."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.runtime.plans import plan, tiled_fusion
from shardtrace.sharding import PartitionSpec as P

from ...executors import agree, forget_plans

SPECIAL = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 300.7, -300.7, 1.5, -0.0, 0.0], np.float32)
CASTS = ["bool", "int8", "int16", "int32", "uint8", "uint32"]


@pytest.mark.parametrize("dtype", CASTS)
@pytest.mark.parametrize("f", [lambda x, t: x.astype(t), lambda x, t: (x + x).astype(t) + t(1),
                               lambda x, t: jnp.where((x * 2).astype(t) > 0, x, 0)],
                         ids=["alone", "chain", "mask"])
def test_casts_of_special_values_do_not_depend_on_fusion(f, dtype, monkeypatch):
    kind = np.dtype(dtype).type
    with st.config.override(shardtrace_engine="per_device"):
        want = np.asarray(st.jit(lambda x: f(x, kind))(SPECIAL))
    if dtype == "int32" and want.dtype == np.int32:
        top, bottom = np.iinfo(np.int32).max, np.iinfo(np.int32).min
        plain = np.asarray(st.jit(lambda x: x.astype(kind))(SPECIAL))
        np.testing.assert_array_equal(plain[:5], [0, top, bottom, top, bottom])
    jitted = st.jit(lambda x: f(x, kind))
    for _ in range(plan.FEW + 3):
        np.testing.assert_array_equal(jitted(SPECIAL), want)
    monkeypatch.setattr(tiled_fusion, "LARGE", 1)
    monkeypatch.setattr(tiled_fusion, "SINGLE", 1)
    forget_plans()
    fused = st.jit(lambda x: f(x, kind))
    for _ in range(plan.FEW + 3):
        np.testing.assert_array_equal(fused(SPECIAL), want)


@pytest.mark.parametrize("f", [
    lambda x: jnp.maximum(x, jnp.ones((1, 4))), lambda x: jnp.arange(4.)[None] + x,
    lambda x: jnp.where(x > 0, x, jnp.ones((1, 4)))], ids=["maximum", "add", "where"])
@pytest.mark.parametrize("executor", ["simulated", "per_device"])
def test_one_row_beside_none(f, executor):
    mesh = st.make_mesh((2,), ("x",))
    x = np.zeros((0, 4), np.float32)
    with st.config.override(shardtrace_engine=executor):
        g = st.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        assert st.jit(f)(x).shape == st.jit(g)(x).shape == x.shape


@pytest.mark.parametrize("f", [
    lambda x: lax.dynamic_update_slice(x.sum(), x[0], ()),
    lambda x: x.sum().at[()].set(x[0]), lambda x: x.sum().at[...].add(x[0])])
def test_a_scalar_is_written_over(f):
    jitted, x = st.jit(f), np.arange(3, dtype=np.int32)
    with st.config.override(shardtrace_engine="per_device"):
        want = np.asarray(st.jit(f)(x))
    for _ in range(plan.FEW + 3):
        np.testing.assert_array_equal(jitted(x), want)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_power_of_a_half_is_no_root_of_what_is_below_or_minus_zero(dtype):
    x = np.array([-np.inf, -0.0, 0, 4, -4, np.inf, np.nan], dtype)
    for y in (0.5, np.full_like(x, 0.5), np.array([0.5], dtype)):
        for found in (agree(lambda v, y=y: jnp.power(v, y), x), np.asarray(jnp.power(x, y))):
            np.testing.assert_array_equal(found, [np.inf, 0, 0, 2, np.nan, np.inf, np.nan])
            assert not np.signbit(found[1])


def test_no_rows_of_a_split_array():
    mesh = st.make_mesh((2,), ("x",))
    x = st.device_put(np.ones((4, 3), np.float32), st.NamedSharding(mesh, P("x")))
    for shape in ((2, 0), (0,)):
        found = agree(lambda v, i: jnp.take(v, i, axis=0), x, np.zeros(shape, np.int32))
        assert found.shape == (*shape, 3)
