"""XLA adds no collective: of its optimised program the kinds, mesh axes and bytes are ours.

How they are compared is said in exchanges.py.
"""
from __future__ import annotations

import importlib
from typing import Any

import pytest

from shardtrace.engines.engine import ENGINES
from shardtrace.engines.xla import rounds

from ..real_jax import real_jax
from .exchanges import assert_nothing_added, planned, summary
from .test_exchanges import CASES, lowered_case


@pytest.fixture(autouse=True)
def in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """No exchange is an all-to-all of more bytes instead of permutations."""
    monkeypatch.setattr(rounds, "ROUND", -1)


@pytest.mark.parametrize("name", ["uneven pieces, times a matrix", "P(x,y) to P((y,x),-)",
                                  "concatenate three sizes", "padded rows times a matrix, cropped"])
def test_a_small_exchange_is_one_exchange(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real_jax()
    monkeypatch.undo()
    (case,) = [case for case in collectives.CASES if case.name == name]
    compiled = collectives.compile_case(case, "shardtrace")
    loaded = ENGINES["jax"].load(
        compiled.program, compiled.runtime_executable().placement.abstract_mesh)
    found = collectives.xla_program(loaded.hlo(), case.mesh)        # type: ignore[attr-defined]
    assert sum(times for times, *_ in found.exchanges) <= len(compiled.collectives())
    assert all(kind != "collective-permute" for _, kind, *_ in found.exchanges)


# products along a group are an all-to-all, as jax.lax has no function for them
@pytest.mark.parametrize("name", [name for name in CASES if name != "scattered product"])
def test_xla_exchanges_what_the_program_says(name: str, jax: Any) -> None:
    lowered, _ = lowered_case(name)
    there = CASES[name][-1]
    compiled = lowered.compile(engine="simulated")
    found = summary(planned(compiled.program))
    assert (found == {}) if there is None else not there or there in found, found
    loaded = ENGINES["jax"].load(
        compiled.program, compiled.runtime_executable().placement.abstract_mesh)
    assert_nothing_added(compiled.program, loaded.hlo())            # type: ignore[attr-defined]


collectives = importlib.import_module("collectives")            # benchmarks/, from exchanges.py
# XLA computes bfloat16 in float32 on the CPU, and exchanges that; products along a group are
# permutations, since jax.lax has no function for them; a reader takes an all-reduce of which
# every device cuts its part for a reduce-scatter.
OTHERWISE = {"gathered, then rounded", "product along the sharded dimension", "linear recurrence"}
BENCHMARK = [case for case in collectives.CASES if case.name not in OTHERWISE]
QUICK = ("mlp step, fsdp x tensor", "token shift by concatenate", "cumsum along sharded rows",
         "pipeline by roll", "microbatches by fori_loop")
SLICE = [case for case in BENCHMARK if case.name in QUICK]


def _check(case: Any) -> None:
    compiled = collectives.compile_case(case, "shardtrace")
    loaded = ENGINES["jax"].load(
        compiled.program, compiled.runtime_executable().placement.abstract_mesh)
    assert_nothing_added(compiled.program, loaded.hlo())            # type: ignore[attr-defined]


@pytest.mark.parametrize("case", SLICE, ids=lambda case: case.name)
def test_xla_adds_nothing_to_programs_of_the_benchmark(case: Any) -> None:
    real_jax()
    _check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", BENCHMARK, ids=lambda case: case.name)
def test_xla_adds_nothing_to_any_program_of_the_benchmark(case: Any) -> None:
    real_jax()
    _check(case)
