"""Positions along a split dimension, and that of the best: what the devices find."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.nn as nn
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...executors import agree
from ...rows import rows

MESH = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
RNG = np.random.default_rng(0)
DATA = RNG.integers(-9, 9, (64, 512)).astype(np.float32)         # many are equal
DATA[3, 5] = DATA[3, 29] = DATA[7, 0] = np.nan
SPECS = [P("x", "y"), P(None, "y"), P(None, ("x", "y")), P(None, ("y", "x")), P(("x", "y"))]


@rows("executor", ["simulated", "per_device"])
@rows("dtype", ["float32", "int32", "bfloat16", "bool"])
@rows("axis", [0, 1, None])
@rows("spec", SPECS)
def test_positions_of_extremes_are_those_of_numpy(spec, axis, dtype, executor):
    x = np.asarray(jnp.asarray(DATA if dtype in ("float32", "bfloat16") else np.nan_to_num(DATA),
                               dtype))
    with st.config.override(shardtrace_engine=executor):
        placed = st.device_put(x, st.NamedSharding(MESH, spec))
        for _ in range(4):
            np.testing.assert_array_equal(st.jit(lambda x: jnp.argmax(x, axis))(placed),
                                          np.argmax(x, axis))
            np.testing.assert_array_equal(st.jit(lambda x: jnp.argmin(x, axis))(placed),
                                          np.argmin(x, axis))


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
@pytest.mark.parametrize("wrong", ["", "start", "order", "kept", "axis"])
def test_a_search_by_hand(wrong, executor):
    """Other starts, the least instead of the greatest, and parts that are read besides."""
    def body(x):
        n = x.shape[1]
        place = jnp.argmax(x, 1).astype(jnp.int32)
        me = lax.axis_index("y")
        start = me * (n + (wrong == "start"))
        values = lax.all_gather(x.min(1) if wrong == "order" else x.max(1), "y")
        places = lax.all_gather(place + start, "x" if wrong == "axis" else "y")
        winner = jnp.argmax(values, 0)
        mine = lax.broadcasted_iota(jnp.int32, places.shape, 0) == winner
        found = jnp.where(mine, places, 0).sum(0)
        return (found[None], values[None], places[None]) if wrong == "kept" else found[None]

    x = np.nan_to_num(DATA)
    f = st.shard_map(body, mesh=MESH, in_specs=P("x", "y"), out_specs=P(("x", "y")),
                     check_vma=False)
    got = []
    for name in (executor, "per_device"):
        with st.config.override(shardtrace_engine=name):
            try:
                got.append(st.tree.leaves(st.jit(f)(x)))
            except Exception as error:      # what does not fit, fits for neither
                got.append([str(type(error))])
    for a, b in zip(*got, strict=True):
        np.testing.assert_array_equal(a, b)


COUNTS = {
    "one hot": lambda x: nn.one_hot(jnp.arange(64) * 7 % 512, 512) * 0.9 + x,
    "mask": lambda x: jnp.where(jnp.arange(64)[:, None] * 8 >= jnp.arange(512), x, -1e9),
    "both": lambda x: x + lax.broadcasted_iota(jnp.int32, (64, 512), 1) * (
        jnp.arange(64)[:, None] - 3),
    "summed": lambda x: (x * jnp.arange(512)).sum(1),
    "cosines": lambda x: x * jnp.cos(jnp.arange(512, dtype=jnp.float32) * 0.1),
    "loop": lambda x: lax.fori_loop(0, 3, lambda i, x: x + jnp.arange(512) * i, x),
}


@rows("executor", ["simulated", "per_device"])
@rows("name", COUNTS)
@rows("spec", SPECS)
def test_counting_along_a_split_dimension(spec, name, executor):
    f, x = COUNTS[name], np.nan_to_num(DATA)
    want = st.jit(f)(x)
    with st.config.override(shardtrace_engine=executor):
        got = st.jit(f)(st.device_put(x, st.NamedSharding(MESH, spec)))
    np.testing.assert_allclose(got, want, rtol=1e-5)


@rows("begin", [
    lambda me, n: me * n, lambda me, n: me * (n + 1), lambda me, n: me * n + 1,
    lambda me, n: me, lambda me, n: -me * n, lambda me, n: (3 - me) * n])
@rows("dtype", [np.int32, np.uint8, np.int8])
def test_counting_on_from_the_block_by_hand(begin, dtype):
    def body(x):
        n = x.shape[1]
        start = jnp.asarray(begin(lax.axis_index("y"), n), dtype)
        rows = lax.broadcasted_iota(dtype, x.shape, 1)
        return rows + start, start + rows, (start + jnp.arange(n, dtype=dtype)) * 2

    f = st.shard_map(body, mesh=MESH, in_specs=P("x", "y"),
                     out_specs=(P("x", "y"), P("x", "y"), P("y")), check_vma=False)
    agree(f, DATA)
