"""The counts that times depend on do not grow unnoticed: calls in a run, rules in a trace, bytes.

Bounds are what is counted today and a quarter more. Times are not asserted: they vary, counts do
not.
"""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace.ir.support.caches import forget
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.resharding.reshards import insert_reshards

from ..paths import module_of_benchmarks
from ..python_calls import python_calls

suite = module_of_benchmarks("suite")
library = module_of_benchmarks("suite.library")
mlp = module_of_benchmarks("suite.programs.mlp")
transformer = module_of_benchmarks("suite.programs.transformer")
elementwise = module_of_benchmarks("suite.programs.elementwise")
worker = module_of_benchmarks("suite.worker")

pytestmark = pytest.mark.usefixtures("empty_caches")
RNG = np.random.default_rng(0)


def calls_of(f: Any) -> int:
    """Calls of Python functions and of C functions that are no ufuncs, in this thread."""
    return python_calls(f, events=("call", "c_call"))


def small(shape: tuple[int, ...], *spec: Any) -> Any:
    return library.Placed(library.normal(RNG, *shape), spec)


SMALL = {
    "one array": (suite.names()["dispatch, one small array"].make, (small((8, 8), "X"),)),
    "100 leaves": (suite.names()["dispatch, 100 leaves"].make,
                   ({f"w{i:03}": small((8, 8), "X") for i in range(100)},)),
    "a chain": (lambda lib: elementwise.chain(lib, 300),
                (small((8, 8), "X"), small((8, 8), "X"))),
    "a loop": (lambda lib: lambda x: lib.lax.fori_loop(0, 200, lambda i, x: x * 0.5 + 1, x),
               (small((8, 8), "X"),)),
    "a step": (mlp.step, (small((8, 16), None, "Y"), small((16, 8), "Y"), small((4, 8), "X"),
                          small((4, 8), "X"))),
    "a block": (lambda lib: lib.root.grad(
        lambda w, x: (transformer.block(lib, w, x) ** 2).mean(), (0, 1)),
        (transformer.weights(RNG, 16, 4), small((4, 8, 16), "X"))),
}


SMALL["an optimizer"] = (suite.names()["adam over 4 x 25 leaves"].make,
                         suite.names()["adam over 4 x 25 leaves"].arguments(RNG))


def ready(name: str) -> tuple[Any, tuple[Any, ...], Any]:
    make, arguments = SMALL[name]
    lib = library.Library("shardtrace", library.GRID, True)
    return lib, library.map_tree(lib.put, arguments), lib.root.jit(make(lib))


@pytest.mark.parametrize(("name", "fixed", "per_equation"), [
    ("one array", 32, 0), ("100 leaves", 0, 4.1), ("a chain", 32, 0), ("a loop", 56, 0),
    ("a step", 0, 2.9), ("a block", 0, 3)])
def test_a_run_makes_few_calls_an_equation(name: str, fixed: int, per_equation: float) -> None:
    lib, args, f = ready(name)
    with lib.context():
        for _ in range(6):
            f(*args)                    # plans that run often are written out
        equations = worker.count_equations(f.trace(*args).jaxpr)
        found = calls_of(lambda: f(*args))
    assert found <= fixed + per_equation * equations, f"{found} calls for {equations} equations"


@pytest.mark.parametrize(("name", "warm", "cleared"), [
    ("one array", 0, 0), ("100 leaves", 41, 41), ("a chain", 20, 20), ("a loop", 72, 90),
    ("a step", 32, 132), ("a block", 20, 114), ("an optimizer", 28, 29)])
def test_an_equation_takes_few_calls_to_trace(name: str, warm: int, cleared: int) -> None:
    """In a new function, where such programs were traced before, and without caches."""
    lib, args, _ = ready(name)
    found = []
    with lib.context():
        for clear in (False, False, False, True, True):
            if clear:
                lib.root.clear_caches()
            f = lib.root.jit(SMALL[name][0](lib))
            found.append(calls_of(lambda: f.trace(*args)))          # noqa: B023
        equations = worker.count_equations(f.trace(*args).jaxpr)
    assert found[2] <= 103 + warm * equations, f"{found} calls for {equations} equations"
    assert found[4] <= 134 + cleared * equations, f"{found} calls for {equations} equations"


@pytest.mark.parametrize(("name", "warm", "cleared"), [
    ("one array", 0, 0), ("100 leaves", 30, 30), ("a chain", 12, 14), ("a step", 92, 620),
    ("a block", 59, 218), ("a loop", 214, 341), ("an optimizer", 17, 19)])
def test_an_equation_takes_few_calls_to_lower(name: str, warm: int, cleared: int) -> None:
    """Of a program that is partitioned anew: where its types were met before, and without caches.
    """
    lib, args, _ = ready(name)
    found = []
    with lib.context():
        for clear in (False, False, True):
            traced = lib.root.jit(SMALL[name][0](lib)).trace(*args)
            forget("driver.execution.partition_cache")
            if clear:
                lib.root.clear_caches()
            found.append(calls_of(traced.lower))
        equations = worker.count_equations(traced.jaxpr)
    assert found[1] <= 500 + warm * equations, f"{found} calls for {equations} equations"
    assert found[2] <= 1400 + cleared * equations, f"{found} calls for {equations} equations"


@pytest.mark.parametrize(("name", "per_equation"), [("a step", 560), ("a block", 114)])
def test_layouts_are_chosen_in_few_calls_an_equation(name: str, per_equation: float) -> None:
    """Where nobody says how values are laid out, and nothing is known of such equations yet."""
    make, arguments = SMALL[name]
    lib = library.Library("shardtrace", library.GRID, False)
    args = library.map_tree(lib.put, arguments)
    with lib.context():
        traced = lib.root.jit(make(lib)).trace(*args)
        resolved = traced.lower().compile().stages["resolved"]
        prices = Objective.of().prices(resolved.mesh)
        for _ in range(2):          # what else is remembered does not depend on the tests before
            forget("partitioner.choice.layouts.TableHolder")
            found = calls_of(lambda: insert_reshards(resolved, prices))
    equations = worker.count_equations(traced.jaxpr)
    assert found <= per_equation * equations, f"{found} calls for {equations} equations"


@pytest.mark.parametrize(("name", "known", "fixed", "per_equation"), [
    ("one array", True, 190, 0), ("100 leaves", True, 190, 48), ("a chain", True, 190, 17),
    ("a step", True, 190, 46), ("a block", True, 190, 35), ("an optimizer", True, 190, 56),
    ("one array", False, 340, 0), ("100 leaves", False, 340, 46), ("a chain", False, 340, 17),
    ("a step", False, 340, 192), ("a block", False, 340, 112), ("an optimizer", False, 340, 91)])
def test_a_first_run_makes_few_calls_an_equation_more(
        name: str, known: bool, fixed: int, per_equation: float) -> None:
    """Of a program that is planned anew, where its types were met before, or all was forgotten.

    The least of three: a table that makes room in one of them forgets what the next one reads.
    """
    lib, args, _ = ready(name)
    made = []
    with lib.context():
        for _ in range(4):
            if not known:
                lib.root.clear_caches()
            traced = lib.root.jit(SMALL[name][0](lib)).trace(*args)
            forget("driver.execution.partition_cache")
            compiled = traced.lower().compile()
            first, second = (calls_of(lambda: compiled(*args)) for _ in range(2))   # noqa: B023
            made.append(first - second)
        equations = worker.count_equations(traced.jaxpr)
    found = min(made[1:])
    assert found <= fixed + per_equation * equations, f"{found} calls for {equations} equations"


@pytest.mark.parametrize(("name", "per_equation"), [
    ("a chain", 0.01), ("a step", 1.0), ("a block", 0.6)])
def test_a_rule_is_evaluated_once_for_what_is_alike(name: str, per_equation: float) -> None:
    lib, args, f = ready(name)
    st.clear_caches()
    with lib.context(), st.profile_phases() as profile:
        traced = f.trace(*args)
    equations = worker.count_equations(traced.jaxpr)
    assert profile.row("trace").rules <= per_equation * equations + 5
    with lib.context(), st.profile_phases() as again:
        lib.root.jit(SMALL[name][0](lib)).trace(*args)
    assert again.row("trace").rules == 0
