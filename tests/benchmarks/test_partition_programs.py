"""The measured programs beside XLA's plans: what is above the bars, the specs of open results, and
values on devices that compute each for itself.
"""
from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest

import shardtrace as st
from shardtrace.ir.settings.context import config

from ..paths import GOLDEN, module_of_benchmarks
from .program_values import arguments, is_run, numbers

collectives = module_of_benchmarks("collectives")
RECORDED = json.loads((GOLDEN / "partition_programs.json").read_text())
CASES = {case.name: case for case in collectives.CASES}

# A constraint that does not divide is left out, with a warning.
pytestmark = pytest.mark.filterwarnings("ignore:with_sharding_constraint:UserWarning")


@pytest.fixture(scope="module")
def compiled() -> Callable[[str], Any]:
    """The program of a name, compiled for devices that compute each for itself."""
    @functools.cache
    def compile_once(name: str) -> Any:
        with config.override(shardtrace_engine="per_device", shardtrace_hardware="v5p"):
            return collectives.compile_case(CASES[name], "shardtrace")
    return compile_once


@pytest.fixture(scope="module")
def as_xla() -> Callable[[str], Any]:
    """The program of a name, compiled as XLA would."""
    @functools.cache
    def compile_once(name: str) -> Any:
        with config.override(shardtrace_objective="xla"):
            return collectives.compile_case(CASES[name], "shardtrace")
    return compile_once


def test_every_program_was_recorded() -> None:
    assert set(CASES) == set(RECORDED)


def test_what_is_above_the_bars_where_time_counts(
        golden: Callable[[str, str], None], compiled: Callable[[str], Any],
        as_xla: Callable[[str], Any]) -> None:
    """Time at most XLA's; operations and memory at most 1.05 and 1.1 of XLA's, or less time."""
    lines = []
    for name, case in CASES.items():
        above = collectives.above(*collectives.plans(
            case, RECORDED[name], "v5p", compiled(name), as_xla(name)))
        if above:
            lines.append(f"{name}: {', '.join(above)}\n")
    golden("partition_bars/time.txt", "".join(lines))


def test_what_takes_longer_than_by_xla_for_gpus(
        golden: Callable[[str, str], None], as_xla: Callable[[str], Any]) -> None:
    """Recorded by `collectives.py --only-jax --gpu` with JAX 0.11.2 beside one H200; exchanges and
    memory at the peak are kept.
    """
    recorded = json.loads((GOLDEN / "partition_programs_gpu.json").read_text())
    assert set(recorded) <= set(CASES)
    lines = []
    for name, found in recorded.items():
        own, xla = collectives.plans(CASES[name], {**RECORDED[name], **found}, "h100",
                                     as_xla=as_xla(name))
        if "time" in collectives.above(own, xla):
            lines.append(f"{name}: {own.seconds / xla.seconds:.2f}\n")
    golden("partition_bars/gpu.txt", "".join(lines))


def test_what_moves_more_than_by_xla_where_bytes_count(
        golden: Callable[[str, str], None]) -> None:
    lines = []
    with config.override(shardtrace_objective="bytes"):
        for name, case in CASES.items():
            moved, _ = collectives.own_bytes(collectives.compile_case(case, "shardtrace"))
            if moved > collectives.received(RECORDED[name]["exchanges"]):
                lines.append(f"{name}\n")
    golden("partition_bars/bytes.txt", "".join(lines))


def test_an_open_result_has_the_spec_that_propagation_gives_it(
        golden: Callable[[str, str], None]) -> None:
    """Cost decides how to get there; it adds no axes, so that one plan by bytes tells. Those that
    differ: where axes compete, the order in which equations are met decides, and the order differs.
    """
    lines = []
    for name, case in CASES.items():
        with config.override(shardtrace_objective="bytes"):
            specs = collectives.open_specs(case, "shardtrace")
        if specs != RECORDED[name]["specs"]:
            lines.append(f"{name}: {specs}, XLA: {RECORDED[name]['specs']}\n")
    golden("partition_bars/specs.txt", "".join(lines))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if is_run(case)])
def test_values_are_those_of_one_device_of_jax(
        name: str, compiled: Callable[[str], Any]) -> None:
    case, wanted, program = CASES[name], RECORDED[name]["values"], compiled(name)
    with config.override(shardtrace_engine="per_device"):
        results = program(*map(st.device_put, arguments(case), program.input_shardings[0]))
    found = numbers(st.tree.leaves(results))
    for own, theirs in zip(found, wanted, strict=True):
        assert own == pytest.approx(theirs, rel=0, abs=1e-3 * max(theirs[0], 1e-6))


TWO_PRODUCTS = """
%fused (a: f32[4,8], b: f32[8,16], c: f32[16,2]) -> f32[4,2] {
  %a = f32[4,8]{1,0} parameter(0)
  %b = f32[8,16]{1,0} parameter(1)
  %c = f32[16,2]{1,0} parameter(2)
  %d = f32[4,16]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %e = f32[4,2]{1,0} dot(%d, %c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (a: f32[4,8], b: f32[8,16], c: f32[16,2]) -> f32[4,2] {
  %a = f32[4,8]{1,0} parameter(0)
  %b = f32[8,16]{1,0} parameter(1)
  %c = f32[16,2]{1,0} parameter(2)
  ROOT %f = f32[4,2]{1,0} fusion(%a, %b, %c), kind=kOutput, calls=%fused
}
"""


def test_products_that_xla_for_cpus_computes_together_count_one_by_one() -> None:
    """(operations, bytes) of each: elsewhere each reads its operands and writes its result."""
    found = collectives.xla_program(TWO_PRODUCTS, {"x": 2}).products
    assert found == {(2 * 4 * 8 * 16, 4 * (4 * 8 + 8 * 16 + 4 * 16)): 1,
                     (2 * 4 * 16 * 2, 4 * (4 * 16 + 16 * 2 + 4 * 2)): 1}
