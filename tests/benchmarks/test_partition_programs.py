"""The measured programs: none moves more than under XLA, and open results keep their specs."""
from __future__ import annotations

import importlib
import json
import sys

import pytest

from ..paths import GOLDEN, ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

collectives = importlib.import_module("collectives")
RECORDED = json.loads((GOLDEN / "partition_programs.json").read_text())
CASES = {case.name: case for case in collectives.CASES}

# Where axes compete, the order in which equations are met decides, and the order differs.
OTHER_SPECS = {"three layers in a scan, gradient, fsdp", "mixture of experts, top 1, gradient"}


def test_every_program_was_recorded() -> None:
    assert set(CASES) == set(RECORDED)


@pytest.mark.parametrize("name", CASES)
def test_no_more_is_moved_than_by_xla(name: str) -> None:
    moved, _ = collectives.own_bytes(collectives.compile_case(CASES[name], "shardtrace"))
    assert moved <= RECORDED[name]["bytes"]


@pytest.mark.parametrize("name", CASES)
def test_an_open_result_has_the_spec_that_propagation_gives_it(name: str) -> None:
    """Cost decides how to get there; it adds no axes."""
    specs = collectives.open_specs(CASES[name], "shardtrace")
    assert (specs == RECORDED[name]["specs"]) is (name not in OTHER_SPECS)
