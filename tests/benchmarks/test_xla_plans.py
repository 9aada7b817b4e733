"""Plans by objective="xla" beside those of XLA: kinds, mesh axes and counts of exchanges."""
from __future__ import annotations

import collections
import json

import pytest

from ..paths import GOLDEN, module_of_benchmarks

xla_plans = module_of_benchmarks("xla_plans")
RECORDED = json.loads((GOLDEN / "xla_plans.json").read_text())

UNEVEN = module_of_benchmarks("partition.uneven").NAMES

# Rows 1 to 63 of 64, split over 8 devices unevenly.
OTHERWISE = {
    "edges repeated", "difference with a first row",
    "associative scan", "linear recurrence",
    "attention of a class token", "convolution in time with stride 2",
    "order of a slice", "fixed boundary by iteration, rows split",
    "chain of labels, time split, gradient",
}


def test_every_program_was_recorded() -> None:
    assert set(xla_plans.programs("")) == set(RECORDED)


def test_most_plans_are_those_of_xla() -> None:
    examples = {name for name in RECORDED if name.startswith("examples/")}
    for names in (examples, {*RECORDED} - examples - UNEVEN):
        assert len(OTHERWISE & names) <= len(names) / 10
    assert len(OTHERWISE & UNEVEN) <= len(UNEVEN) / 4


@pytest.mark.parametrize("name", RECORDED)
def test_the_plan_is_that_of_xla(name: str) -> None:
    same = xla_plans.own_plan(name) == collections.Counter(RECORDED[name])
    assert same is (name not in OTHERWISE)


HLO = """
%fused (p0: f32[8]) -> f32[4] {
  %p0 = f32[8]{0} parameter(0)
  ROOT %cut = f32[4]{0} dynamic-slice(%p0, %zero), dynamic_slice_sizes={4}
}

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %all-gather.1 = f32[8]{0} all-gather(%x), replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}
}

ENTRY %main (a: f32[8]) -> f32[1] {
  %a = f32[8]{0} parameter(0)
  %all-reduce = (f32[8]{0}, f32[8]{0}) all-reduce(%a, %b), replica_groups={{0,4},{1,5},{2,6},{3,7}}
  %gte.0 = f32[8]{0} get-tuple-element(%all-reduce), index=0
  %gte.1 = f32[8]{0} get-tuple-element(%all-reduce), index=1
  %w = (s32[], f32[8]) while(%t), body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %f = f32[4]{0} fusion(%gte.0), kind=kLoop, calls=%fused
  ROOT %sum = f32[8]{0} add(%gte.1, %gte.1)
}
"""


def test_a_part_of_a_joint_sum_that_is_cut_is_a_reduce_scatter() -> None:
    assert xla_plans.plan_of_hlo(HLO, {"x": 2, "y": 4}) == {
        "all-reduce x": 1, "reduce-scatter x": 1, "all-gather y": 5}
