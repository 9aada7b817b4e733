"""Reshards go by way of another layout where that takes less time."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace.partitioner.collectives import collectives
from shardtrace.partitioner.pipeline import Options, partition
from shardtrace.sharding import PartitionSpec as P

from ..agreement import agree
from ..building import Build, auto


def plan(hardware: str, shape: tuple[int, ...], source: P, target: P, skip: str = "",
         sizes: tuple[int, int] = (2, 4)) -> list[tuple[str, tuple[str, ...]]]:
    """(kind, axes) of the exchanges of the plan by time, beside which no other is made."""
    b = Build(auto(*sizes, names="xy"))
    program = b.program(b.op("neg", b.arg(*shape)))
    with st.config.override(shardtrace_skip=skip):
        done = partition(program, mesh=b.mesh, in_shardings=[source], out_shardings=[target],
                         options=Options(objective="time", hardware=hardware, compared=0))
    return [(c.kind, c.mesh_axes) for c in collectives(done.local)]


ROWS = P(None, ("y", "x")), P("x")


def test_few_bytes_are_gathered_at_once_and_cut() -> None:
    assert plan("h100", (64, 512), *ROWS) == [("all-gather", ("y", "x"))]
    fewest = [("all-to-all", ("x",)), ("all-gather", ("y",))]
    assert plan("h100", (64, 512), *ROWS, skip="route-reshards") == fewest
    assert plan("h100", (8192, 8192), *ROWS) == fewest


def test_slow_links_are_used_while_blocks_are_small() -> None:
    """On these tori the axis of two devices is one dimension of two, the other one two of them."""
    wide = (16, 512, 1024), P("y", None, "x"), P()
    major_first = [("all-gather", ("x",)), ("all-gather", ("y",))]
    assert plan("v5p", *wide) == plan("v5p", *wide, skip="route-reshards") == major_first
    assert plan("v5p", *wide, sizes=(4, 2), skip="route-reshards") == major_first
    assert plan("v5p", *wide, sizes=(4, 2)) == major_first[::-1]


@pytest.mark.parametrize("source, target", [
    ((None, ("y", "x")), ("x",)), ((("x", "y"),), (("y", "x"),)), (("x", "y"), ("y",)),
    ((("y", "x"),), (None, "x")), ((None, ("x", "y")), ("y", "x"))])
def test_values_arrive_over_routes_of_several_steps(source, target) -> None:
    x = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)
    with st.config.override(shardtrace_objective="time", shardtrace_hardware="h100"):
        agree(lambda a: a * 2, [x], [source], target, (2, 4))
