"""The mixed-integer program beside all choices there are."""
from __future__ import annotations

import itertools
from typing import Any

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.driver.analysis.applied_changes import inlined
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.planning.groups import Groups
from shardtrace.planning.model import Model
from shardtrace.planning.solve import solve
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P


def forward(x: Any, up: Any, down: Any) -> Any:
    return jnp.tanh(x @ up) @ down


def slopes(x: Any, up: Any, down: Any) -> Any:
    return st.grad(lambda w: (forward(x, *w) ** 2).mean())((up, down))


@pytest.mark.parametrize("f", [forward, slopes])
def test_the_answer_and_the_bound_are_the_least_of_all_choices(f: Any) -> None:
    mesh = AbstractMesh((4,), ("data",))
    args = [st.ShapeDtypeStruct(s, "float32", sharding=NamedSharding(mesh, P()))
            for s in ((512, 256), (256, 1024), (1024, 256))]
    program = inlined(st.jit(f).trace(*args).jaxpr, padded=False)
    model = Model(Groups(program), mesh, Objective.of("time", "v5p"))
    least = min(map(model.cost, itertools.product(*[range(len(x)) for x in model.layouts])))
    found = solve(model, (0,) * len(model.groups))
    assert found is not None
    assert found.cost == pytest.approx(least) and found.bound == pytest.approx(least)
