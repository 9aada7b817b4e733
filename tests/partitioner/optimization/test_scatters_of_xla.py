"""All-reduces that JAX 0.10.2 compiles to reduce-scatters, and those that stay as they are."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...executors import EXECUTORS
from ...rows import rows


@rows("f, args, out, found", [
    (jnp.matmul, [((64, 32), P(None, ("x", "y"))), ((32, 64), P(("x", "y")))], P(("x", "y")),
     ["reduce-scatter x,y"]),
    (jnp.matmul, [((64, 32), P(None, ("x", "y"))), ((32, 64), P(("x", "y")))], P("y", "x"),
     ["all-reduce x", "all-reduce y"]),
    (jnp.matmul, [((64, 32), P(None, ("y", "x"))), ((32, 64), P(("y", "x")))], P(None, "x"),
     ["reduce-scatter x", "all-reduce y"]),
    (lambda a, b: (a @ b).reshape(2, 8, 32), [((16, 64), P(None, "y")), ((64, 32), P("y"))],
     P(None, "y"), ["reduce-scatter y"]),
    (lambda a: a.max(1), [((16, 16, 64), P(None, "x"))], P("x", "y"), ["all-reduce x"]),
    (lambda a: a.max(1), [((16, 16, 64), P(None, "x"))], P(None, "x"), ["reduce-scatter x"]),
    (lambda a: a.sum(1), [((64, 128), P(None, ("x", "y")))], P("x"), ["all-reduce x,y"]),
    (lambda a: jnp.sort(a[:, -1], 1), [((16, 16, 64), P("x", "y"))], P(("y", "x")),
     ["collective-permute y", "reduce-scatter y", "collective-permute x,y"]),
    (lambda a, b, i: lax.dynamic_slice_in_dim(a @ b, i.astype(int), 8), [
        ((16, 64), P(None, "y")), ((64, 32), P("y")), ((), P())], P(None, "y"),
     ["all-reduce y"])])
@rows("executor", EXECUTORS)
def test_a_sum_is_scattered_if_its_members_keep_all_of_it(
        f: Callable[..., Any], args: Any, out: P, found: list[str], executor: str) -> None:
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    rng = np.random.default_rng(0)
    values = [rng.integers(-4, 4, shape).astype("f4") for shape, _ in args]
    step = st.jit(f, out_shardings=NamedSharding(mesh, out), compiler_options={"objective": "xla"})
    with st.config.override(shardtrace_engine=executor):
        split = [st.device_put(v, NamedSharding(mesh, spec))
                 for v, (_, spec) in zip(values, args, strict=True)]
        np.testing.assert_array_equal(step(*split), st.jit(f)(*values))
    records = step.lower(*split).compile().collectives()
    assert [f"{r.kind} {','.join(sorted(r.mesh_axes))}" for r in records] == found


def test_a_sum_over_an_axis_of_one_device_too_stays_a_sum() -> None:
    """Its result does not vary over that axis; that of the scatter along the other one does."""
    mesh = st.make_mesh((1, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    least = st.shard_map(lambda v: lax.pmin(v, ("x", "y")), mesh=mesh, in_specs=P(None, "x"),
                         out_specs=P())
    v = np.arange(24, dtype=np.float32).reshape(8, 3)
    step = st.jit(least, out_shardings=NamedSharding(mesh, P("y")),
                  compiler_options={"objective": "xla"})
    np.testing.assert_array_equal(step(v), v)
