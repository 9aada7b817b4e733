"""Figures of per-device programs that can be checked by hand."""
from __future__ import annotations

from building import Build, auto

from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.partitioner.cost import cost
from shardtrace.partitioner.pipeline import partition

MESH = auto(8, names="x")


def test_bytes_exchanges_and_peak_of_a_contraction():
    b = Build(MESH)
    x, w = b.arg(16, 64), b.arg(64, 32)
    done = partition(b.program(b.dot(x, w)), mesh=MESH, in_shardings=[P(None, "x"), P("x")])
    figures = cost(done.local)
    assert figures.received == 2 * 7 * 16 * 32 * 4 // 8
    assert figures.exchanges == 1
    arguments = (16 * 8 + 8 * 32) * 4
    assert figures.peak == arguments + 2 * 16 * 32 * 4        # the partial product and its sum


def test_values_are_freed_after_their_last_use():
    b = Build(MESH)
    y = x = b.arg(64, 64)
    for _ in range(10):
        y = b.op("neg", y)
    done = partition(b.program(y), mesh=MESH, in_shardings=[P("x")])
    assert cost(done.local).peak == 3 * 8 * 64 * 4
    assert cost(done.local).received == 0
    del x
