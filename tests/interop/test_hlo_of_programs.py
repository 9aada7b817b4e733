"""The report on what XLA makes of the programs of benchmarks/, beside another reader's count."""
from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shardtrace.interop.hlo.report import report_of

from ..paths import module_of_benchmarks
from ..real_jax import real_jax

real_jax()
hlo, programs = module_of_benchmarks("hlo"), module_of_benchmarks("collectives")
QUICK = 30                      # each thirtieth program is compiled in any run, all in slow ones


def told(kind: str, members: int) -> Any:
    """What is counted together: an all-reduce of which blocks are read is called a reduce-scatter
    by the other reader; and it has the devices of all pairs of a permutation."""
    kind = {"reduce-scatter": "all-reduce"}.get(kind, kind)
    return kind if kind == "collective-permute" else (kind, members)


@pytest.mark.parametrize("case", [
    case if i % QUICK == 0 else pytest.param(case, marks=pytest.mark.slow)
    for i, case in enumerate(programs.CASES)], ids=lambda case: case.name)
def test_collectives_are_those_that_another_reader_counts(case: Any) -> None:
    text = programs.compile_case(case, "jax").as_text()
    wanted: Counter[Any] = Counter()
    for times, kind, _, members, size in hlo.xla_program(text, case.mesh).exchanges:
        wanted[told(kind, members)] += times * size
    found: Counter[Any] = Counter()
    # of branches the other reader takes the one that exchanges most, and once what a loop does of
    # which the text does not say how often it runs
    at_least = False
    for x in report_of(text.splitlines()).collectives:
        found[told(x.kind, x.group_size)] += x.times * x.operand_bytes
        at_least = at_least or x.in_branch or not x.is_known
    if at_least:
        assert all(found[key] >= size for key, size in wanted.items())
    else:
        assert {k: n for k, n in found.items() if n} == {k: n for k, n in wanted.items() if n}
