"""Exchanges that the partitioner made one are separate again where they cost nothing to start."""
from __future__ import annotations

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.context import config
from shardtrace.runtime.rewrites.flatten import FlatProgram
from shardtrace.runtime.rewrites.separate import separate
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("x", "y"))
RNG = np.random.default_rng(0)


def sums(a, b, c):
    """Three sums over devices, of parts of other shapes and of one that is a vector."""
    return tuple(lax.psum(v, "x") for v in (a * 2, b.sum(0), jnp.tanh(c)))


def args():
    return [RNG.normal(size=s).astype(np.float32) for s in ((4, 6), (8, 3), (2, 4, 2))]


def mapped():
    return st.jit(st.shard_map(sums, mesh=MESH, in_specs=(P("x"), P("x"), P("x", "y")),
                               out_specs=(P(), P(), P(None, "y"))))


def test_parts_are_reduced_without_being_joined():
    local = mapped().trace(*args()).lower().compile().stages["optimized"]
    flat = FlatProgram(local)
    names = [e.op.name for e in flat.eqns]
    assert "concatenate" in names and names.count("psum_invariant") < 3
    separate(flat)
    names = [e.op.name for e in flat.eqns]
    assert "concatenate" not in names and "slice" not in names
    assert names.count("psum_invariant") == 3


def test_results_stay_what_they_are():
    given, found = args(), []
    before = config.shardtrace_executor
    try:
        for executor in ("simulated", "per_device"):
            config.update("shardtrace_executor", executor)
            found.append(mapped()(*given))
    finally:
        config.update("shardtrace_executor", before)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_what_is_read_as_a_whole_stays_joined():
    def f(a, b):
        joined = lax.psum(jnp.concatenate([a.reshape(-1), b.reshape(-1)]), "x")
        return joined, joined[:a.size].reshape(a.shape)
    program = st.jit(st.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P()))
    given = args()[:2]
    flat = FlatProgram(program.trace(*given).lower().compile().stages["optimized"])
    separate(flat)
    assert "concatenate" in [e.op.name for e in flat.eqns]
    blocks = [x.reshape(2, -1) for x in given]
    want = np.concatenate(blocks, 1).sum(0)
    whole, part = program(*given)
    np.testing.assert_allclose(whole, want, rtol=1e-5)
    np.testing.assert_allclose(part, want[:12].reshape(2, 6), rtol=1e-5)
