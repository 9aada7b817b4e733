"""Trials: what is known of a plan, and what is kept."""
from __future__ import annotations

import gc

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.driver.analysis.applied_changes import inlined
from shardtrace.ir.program import Level, Program
from shardtrace.partitioner.cost.memory import memory
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.cost.topology import Topology
from shardtrace.partitioner.pipeline import partition
from shardtrace.planning.trials import Plan, Trials
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((8,), ("data",))


def per_device_programs() -> int:
    gc.collect()
    return sum(isinstance(x, Program) and x.level is Level.LOCAL for x in gc.get_objects())


@pytest.mark.usefixtures("only_own_objects")
def test_no_program_is_kept_of_a_plan_and_what_one_far_behind_holds_is_found_when_asked_for():
    args = [st.ShapeDtypeStruct(s, "float32", sharding=NamedSharding(MESH, P()))
            for s in ((4096, 512), (512, 512))]
    program = inlined(st.jit(lambda x, w: jnp.tanh(x @ w)).trace(*args).jaxpr, padded=False)
    objective = Objective.of("time", "v5p", 10 ** 9)
    trials = Trials(program, MESH, (), objective, Topology.of(objective.hardware, MESH.shape))
    rows, whole = (Plan((spec, P()), (None,)) for spec in (P("data"), P()))
    before = per_device_programs()
    near, far = trials.trial(rows), trials.trial(whole)
    assert near is not None and near.fits and near.figures.peak_bytes == near.peak > 0
    assert far is not None and far.peak == 0 and far.figures.time > near.figures.time
    assert per_device_programs() == before
    made = partition(program, mesh=MESH, in_shardings=whole.arguments)
    assert far.figures.peak_bytes == memory(made.local).peak_bytes
