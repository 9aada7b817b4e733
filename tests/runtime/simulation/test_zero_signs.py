"""Both executors give the same bits of maxima, minima and sums over devices, but for zeros."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace import lax
from shardtrace.ir.settings.context import config
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((4, 2), ("x", "y"))
VALUES = np.array([0.0, -0.0, np.nan, 1.0, -1.0], np.float32)


@pytest.mark.parametrize("op", [lax.pmax, lax.pmin, lax.psum])
@pytest.mark.parametrize("axes", ["x", ("x", "y")])
def test_executors_agree_on_ties_nan_and_zeros(op, axes):
    rng = np.random.default_rng(0)
    f = st.shard_map(lambda v: op(v, axes), mesh=MESH, in_specs=P(axes), out_specs=P())
    for _ in range(10):
        x = rng.choice(VALUES, (8, 6))
        found = []
        for executor in ("simulated", "per_device"):
            with config.override(shardtrace_engine=executor):
                found.append(np.asarray(st.jit(f)(x)))
        one, other = found
        same = one.view(np.uint32) == other.view(np.uint32)
        assert (same | ((one == 0) & (other == 0) & (op is not lax.psum))).all()
