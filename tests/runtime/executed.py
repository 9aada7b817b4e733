"""What the tests of exchanges that are written by hand share: what is executed, and its results."""
from __future__ import annotations

from typing import Any

import numpy as np

import shardtrace as st
from shardtrace.runtime.rewrites.flatten import FlatProgram
from shardtrace.runtime.rewrites.lean import lean_program
from shardtrace.sharding import PartitionSpec as P

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def results(f: Any, args: Any, mesh: Any, specs: Any = P("x"), out: Any = P("x"),
            tolerance: float = 2e-5) -> tuple[list[np.ndarray], FlatProgram]:
    """What a shard_map gives in the simulated executor, which the other one gives too, and the
    program that the first one executes.

    tolerance: of floats of 32 bits and more; others are equal.
    """
    mapped = st.shard_map(f, mesh=mesh, in_specs=specs, out_specs=out)
    jitted = st.jit(lambda *xs: mapped(*xs))
    flat = lean_program(jitted.lower(*args).compile().program)
    found = []
    for executor in ("simulated", "per_device"):
        with st.config.override(shardtrace_executor=executor):
            found.append([np.asarray(x) for x in st.tree.leaves(jitted(*args))])
    for a, b in zip(*found, strict=True):
        if a.dtype.kind == "f" and a.dtype.itemsize >= 4:
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(a, b)
    return found[0], flat
