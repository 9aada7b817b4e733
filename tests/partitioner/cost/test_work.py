"""Operations that are counted: as XLA counts them, within the tolerance that each case says."""
from __future__ import annotations

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, ops

IDS, ROWS, TABLE = ((256,), "int32"), ((256, 64), "float32"), ((1024, 64), "float32")
IMAGE = ((8, 32, 32, 16), "float32")

# name -> (function of a library's (root, numpy, lax, ops), operands, operations by hand)
CASES = {
    "rows are added where indices say": (
        lambda r, n, x, o: lambda t, i, u: t.at[i].add(u), (TABLE, IDS, ROWS), 256 * 64),
    "gradient of an embedding": (
        lambda r, n, x, o: lambda t, i: r.grad(lambda t: (t[i] ** 2).sum())(t), (TABLE, IDS),
        2 * 256 * 64),
    "sums of segments": (
        lambda r, n, x, o: lambda v, i: o.segment_sum(v, i, num_segments=32), (ROWS, IDS),
        256 * 64),
    "means of windows": (
        lambda r, n, x, o: lambda v: x.reduce_window(
            v, 0.0, x.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME"), (IMAGE,), 8 * 32 * 32 * 16 * 8),
    "running sums": (
        lambda r, n, x, o: lambda v: n.cumsum(v, 0), (ROWS,), 256 * 64 * 16),
    "running sums of few": (
        lambda r, n, x, o: lambda v: n.cumsum(v, 0), (((8, 64), "float32"),), 8 * 64 * 7),
    "places of maxima": (
        lambda r, n, x, o: lambda v: n.argmax(v, 1), (ROWS,), 256 * 63 * 9),
    "positions in order": (
        lambda r, n, x, o: lambda v: n.argsort(v, 0), (ROWS,), 256 * 64 * 14),
    "gradient of a maximum pooling": (
        lambda r, n, x, o: r.grad(lambda v: x.reduce_window(
            v, -n.inf, x.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()), (IMAGE,),
        8 * 16 * 16 * 16 * (3 * 11 + 1)),
    "transposed convolution": (
        lambda r, n, x, o: lambda v, k: x.conv_transpose(v, k, (2, 2), "SAME"),
        (IMAGE, ((3, 3, 16, 16), "float32")), 2 * 8 * 32 * 32 * 9 * 16 * 16 * 0.95),
    "strided convolution, with padding": (
        lambda r, n, x, o: lambda v, k: x.conv_general_dilated(
            v, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        (IMAGE, ((3, 3, 16, 16), "float32")), 2 * 8 * 47 * 47 * 16 * 16),
    "rows or zeros": (
        lambda r, n, x, o: lambda v: n.where(v > 0, v, 0.0), (ROWS,), 2 * 256 * 64),
    "lower triangle": (lambda r, n, x, o: lambda v: n.tril(v), (ROWS,), 2 * 256 * 64),
    "powers": (
        lambda r, n, x, o: lambda v: v ** 7 + v ** -2, (ROWS,), 256 * 64 * (4 + 2 + 1)),
}


def flops(r, n, x, o, name):
    make, operands, _ = CASES[name]
    found = r.jit(make(r, n, x, o)).lower(*[r.ShapeDtypeStruct(*a) for a in operands])
    # which tests turn off, and with which it counts what it fuses
    options = {} if r is st else {"compiler_options": {"xla_cpu_use_fusion_emitters": True}}
    found = found.compile(**options).cost_analysis()
    return (found[0] if isinstance(found, list) else found)["flops"]


@pytest.mark.parametrize("name", CASES)
def test_operations_are_those_counted_by_hand(name):
    wanted = CASES[name][2]
    assert wanted <= flops(st, jnp, lax, ops, name) <= 3 * wanted


@pytest.mark.parametrize("name", CASES)
def test_operations_are_those_that_xla_counts(name):
    jax = pytest.importorskip("jax")
    wanted = flops(jax, jax.numpy, jax.lax, jax.ops, name)
    assert 0.9 * wanted <= flops(st, jnp, lax, ops, name) <= 1.6 * wanted
