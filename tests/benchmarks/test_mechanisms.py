"""Each pass of the simulated executor has a program in the suite that fails its goal without it."""
from __future__ import annotations

import pytest

from shardtrace.ir.settings.context import config

from ..paths import module_of_benchmarks

mechanisms = module_of_benchmarks("mechanisms")
goals = module_of_benchmarks("suite.goals")
library = module_of_benchmarks("suite.library")
suite = module_of_benchmarks("suite")
worker = module_of_benchmarks("suite.worker")


def test_every_pass_has_one_with_a_goal() -> None:
    assert sorted(mechanisms.ROWS) == sorted(mechanisms.PASSES)
    wanted = {name for name, column, _ in goals.CLASSES if column == "numpy"}
    assert {*mechanisms.ROWS.values()} <= wanted | {
        mechanisms.ROWS[step] for step in mechanisms.MEMORY}


@pytest.mark.parametrize("step", sorted({p.name for p in mechanisms.EXECUTION if p.may_be_skipped}
                                        - mechanisms.MEMORY))
def test_its_plan_changes(step: str) -> None:
    p = suite.names()[mechanisms.ROWS[step]]
    lib = library.Library("shardtrace", p.mesh, p.explicit)

    def lines(skip: str) -> list[str]:
        with config.override(shardtrace_skip=skip):
            return mechanisms.planned_of(w)[1]
    with lib.context():
        w = worker.Worker("shardtrace", p, lib=lib)
        assert lines("") != lines(step)
