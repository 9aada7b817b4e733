"""Programs drawn at random: the same each time, and right on devices that compute each for itself.
"""
from __future__ import annotations

import math

import numpy as np
import pytest

import shardtrace as st
from shardtrace.ir.settings.context import config

from ..paths import module_of_benchmarks
from .program_values import arguments

collectives = module_of_benchmarks("collectives")
drawn = module_of_benchmarks("partition.drawn").drawn

MOST = 4_000_000                # elements of all arguments of a program that is run
DRAWN = drawn(1, 40)
# without recurrences over many steps, in which what is rounded otherwise grows
SMALL = [case for case in DRAWN if sum(math.prod(a[0]) for a in case.args) <= MOST
         and "step =" not in case.text]


def test_a_seed_gives_the_same_programs() -> None:
    again = drawn(1, 5)
    assert [(c.text, c.args, c.out) for c in again] == [(c.text, c.args, c.out) for c in DRAWN[:5]]
    assert len({c.text for c in DRAWN}) > 30


@pytest.mark.parametrize("case", SMALL[:12], ids=lambda case: case.name)
@pytest.mark.parametrize("objective", ["time", "xla"])
def test_values_on_devices_that_compute_alone(case: object, objective: str) -> None:
    """Beside the same program on one device, where nothing is partitioned."""
    given = arguments(case)
    with config.override(shardtrace_engine="per_device", shardtrace_objective=objective):
        found = st.tree.leaves(collectives.compile_case(case, "shardtrace")(*given))
    f = case.make(st, st.numpy, st.lax, st.P)
    wanted = st.tree.leaves(st.jit(f)(*given))
    for own, one in zip(found, wanted, strict=True):
        one = np.asarray(one)
        np.testing.assert_allclose(own, one, rtol=1e-3, atol=1e-4 * max(1e-6, np.abs(one).max()))
