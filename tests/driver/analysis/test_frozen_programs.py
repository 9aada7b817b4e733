"""A plan that is frozen and thawed on the same program is kept wholly, program by program.

What is exchanged, held and computed is the same. The order of exchanges that do not wait for each
other is no decision, so what passes beside what may differ, and with it a little of the time.
"""
from __future__ import annotations

from typing import Any

import pytest

import shardtrace as st
from shardtrace.driver.analysis.explain import explain_stage
from shardtrace.ir.settings.context import config

from ...paths import module_of_benchmarks

benchmark = module_of_benchmarks("collectives")
CASES = {case.name: case for case in benchmark.CASES}
SOME = [
    "queries of the rows before",                       # rows of constants
    "convolution 3x3, rows sharded",                    # rows of neighbours
    "two layers' step, data x tensor, large",           # sums that wait
    "four layers' scan, data x tensor, large",          # sums that leave a loop
    *list(CASES)[::16]]
NUMBERS = 64            # bytes up to which what is exchanged is a number, which no plan is about


def figures(lowered: Any) -> tuple:
    found = explain_stage(lowered, suggest_seconds=0)
    return (sorted((c.kind, c.mesh_axes, c.received_bytes, c.count) for c in found.collectives
                   if c.received_bytes > NUMBERS),
            pytest.approx(found.peak_bytes, rel=1e-3), pytest.approx(found.flops, rel=1e-3),
            pytest.approx(found.time, rel=0.05))


def assert_is_kept(name: str) -> None:
    jitted, mesh, args = benchmark.jitted_case(CASES[name], "shardtrace")
    with st.set_mesh(mesh):
        kept = st.thaw_plan(jitted, st.freeze_plan(jitted)(*args))
        difference = kept.difference(*args)
        assert difference.fits and not difference.new, str(difference)
        assert figures(kept.lower(*args)) == figures(jitted.lower(*args))


@config.override(shardtrace_objective="time")
@pytest.mark.parametrize("name", dict.fromkeys(SOME))
def test_a_plan_is_kept(name: str) -> None:
    assert_is_kept(name)


@pytest.mark.slow
@config.override(shardtrace_objective="time")
@pytest.mark.parametrize("name", CASES)
def test_every_plan_is_kept(name: str) -> None:
    assert_is_kept(name)
