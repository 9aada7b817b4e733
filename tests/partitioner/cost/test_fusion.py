"""What is computed where it is read, against the temporaries that XLA's compiler of CPUs plans.

Each is a function of `jax.numpy`'s functions with the shapes of its operands, and the bytes of
XLA's temporaries; with JAX at hand they are planned again.
"""
from __future__ import annotations

import numpy as np

import shardtrace as st
from shardtrace import lax

from ...real_jax import real_jax
from ...rows import rows

ROWS = (64, 128)
CASES = {
    "what takes long is not repeated by a broadcast": (
        lambda n, x, y: n.exp(x)[:, None] + y, ((64, 16), (64, 32, 16)), 64 * 16 * 4),
    "sines do not": (lambda n, x, y: n.sin(x)[:, None] + y, ((64, 16), (64, 32, 16)), 0),
    "nor is a lookup": (
        lambda n, x, i: x[i.astype(int)].T[:, None] + n.zeros((16, 4, 64)),
        ((128, 16), (64,)), 16 * 64 * 4),
    "what is larger than its operands is computed by each that reads it": (
        lambda n, x, y: ((x[:, None] - y).max(1), (x[:, None] - y).min(0)), ((32,), (32,)), 0),
    "a sum is, too, where none of these waits for another": (
        lambda n, x, y: ((x + y).max(1), (x + y).min(0)), ((32, 32), (32, 32)), 0),
    "but not where one does": (
        lambda n, x, y: n.sort((x + y) * 2, 1) * 2 + (x + y), (ROWS, ROWS), 64 * 128 * 4),
    "one that is in memory for a sort is computed anew by others": (
        lambda n, x: n.sort(n.sort(x * 2, 1) * (x * 2), 1)[:, :9], (ROWS,), 64 * 128 * 4),
    "short rows are put together where they are read": (
        lambda n, x, y: n.sort(n.flip(n.concatenate([x, y], 1), 1), 1)[:, :9],
        ((64, 63), (64, 64)), 64 * 127 * 4),
    "so are stacks": (
        lambda n, x: n.sort(n.stack([x[1:], -x[:-1]], 1), 1)[:, :1], ((129,),), 128 * 2 * 4),
    "long ones are in memory": (
        lambda n, x, y: n.sort(n.flip(n.concatenate([x, y], 1), 1), 1)[:, :9],
        ((64, 64), (64, 64)), 2 * 64 * 128 * 4),
    "what is put together is not computed twice": (
        lambda n, x, y: (lambda z: z[1:] * z[:-1])(n.concatenate([x, y])),
        ((64, 16), (64, 16)), 2 * 64 * 16 * 4),
    "what is reduced over dimensions of size 1 is not": (
        lambda n, x, y: n.where((y[..., None] > 0).all(-1), x, 0).max(1),
        ((64, 32), (64, 32)), 0),
    "nor does a running sum compute what it adds up": (
        lambda n, x: (n.cumsum(x * x, 1) * 2).sum(1), ((64, 16),), 2 * 64 * 16 * 4),
    "a kernel computes a value at up to 15 indices": (
        lambda n, x: shifted_sums(x, 4), ((64, 16),), 0),
    "what only products read is made in the orders in which they do": (
        lambda n, x, y: (lambda z: n.einsum("mec,ecd->emd", z, n.einsum("mec,md->ecd", z, y)))(
            x * 2), ((64, 4, 16), (64, 8)), (2 * 64 * 4 * 16 + 4 * 16 * 8) * 4),
    "what it would compute at more is written": (
        lambda n, x: shifted_sums(x, 5), ((64, 16),), 63 * 16 * 4),
}


def shifted_sums(x, times):
    for _ in range(times):
        x = x[1:] + x[:-1]
    return x


def temporaries(m, f, shapes):
    args = [m.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    plan = m.jit(lambda *args: f(m.numpy, *args)).lower(*args).compile()
    return plan.memory_analysis().temp_size_in_bytes


@rows("fact", CASES)
def test_what_is_fused(fact):
    f, shapes, nbytes = CASES[fact]
    assert temporaries(st, f, shapes) == nbytes


def test_the_table_is_what_the_compiler_says():
    jax = real_jax(1)
    assert {fact: temporaries(jax, f, shapes) for fact, (f, shapes, _) in CASES.items()} == {
        fact: nbytes for fact, (_, _, nbytes) in CASES.items()}


def flipped_powers(count):
    def f(n, x):
        made = []
        for i in range(count):
            x = x * 1.5
            made.append(n.flip(x) + i)
        return made
    return f


def test_what_more_than_64_kernels_would_compute_is_written():
    assert temporaries(st, flipped_powers(64), ((64,),)) == 0
    assert temporaries(st, flipped_powers(66), ((64,),)) == 64 * 4


def test_plans_of_xla_sum_whole_values_before_they_cut_a_reduce_scatter():
    mesh = st.sharding.AbstractMesh((8,), ("x",))

    def peak(objective):
        with st.config.override(shardtrace_objective=objective):
            x = st.ShapeDtypeStruct((512, 64), np.float32,
                                    sharding=st.NamedSharding(mesh, st.P("x")))
            return st.explain(st.shard_map(
                lambda x: lax.psum_scatter(x @ x.T, "x", tiled=True), mesh=mesh,
                in_specs=st.P("x"), out_specs=st.P("x")))(x).peak_bytes
    assert peak("xla") - peak("time") == 64 * 64 * 4
