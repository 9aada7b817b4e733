"""Axes that always go together are chosen and planned for as one axis."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.ops.communication.collective_kinds import total_received
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.support.caches import forget
from shardtrace.partitioner.choice.layouts import layouts_for
from shardtrace.partitioner.collectives import collectives
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.pipeline import partition
from shardtrace.partitioner.redistribution import partial_sums
from shardtrace.partitioner.redistribution.effects import Move
from shardtrace.partitioner.redistribution.joint_axes import JointAxes, joint_axes, rows_of
from shardtrace.partitioner.redistribution.redistribute import plan

from .. import lockstep
from ..building import Build, auto

MESH = AbstractMesh((2, 2, 4), ("x", "y", "z"))


@pytest.mark.parametrize("lists, sums, rows", [
    ([("x", "y"), ("z",)], [], [("x", "y")]),
    ([("x", "y", "z")], [], [("x", "y", "z")]),
    ([("z", "y", "x"), ("z", "y")], [], [("z", "y")]),
    ([("x", "y"), ("y", "x")], [], []),
    ([("x", "y"), ("z", "y")], [], []),
    ([("x", "y"), ("y",)], [], []),
    ([("x", "y"), ("x",)], [], []),
    ([("x", "y")], [frozenset("x")], []),
    ([("x", "y")], [frozenset("xyz")], [("x", "y")]),
    ([("x", "y", "z")], [frozenset("yz")], [("y", "z")]),
    ([("x", "z:(1)2")], [], []),
    ([("x", "z"), ("z:(1)2",)], [], []),
])
def test_axes_that_always_stand_together_are_joined(lists, sums, rows):
    assert rows_of(MESH, lists, sums) == tuple(rows)


def test_names_go_there_and_back():
    joint = JointAxes(MESH, (("x", "y"),))
    assert joint.mesh.shape_tuple == (("(x,y)", 4), ("z", 4))
    layout = joint.in_joint_axes((("x", "y"), ("z",)), frozenset())
    assert layout == ((("(x,y)",), ("z",)), frozenset())
    assert [joint.spelled(axes) for axes in layout[0]] == [("x", "y"), ("z",)]
    assert joint.in_joint_axes(((), ()), frozenset("xyz")) == (((), ()), frozenset(("(x,y)", "z")))


def step(mesh: AbstractMesh, batch: tuple[str, ...]):
    """Two products and a sum over the batch, as in a step of training: (program, partitioned)."""
    b = Build(mesh)
    x, w, y = b.arg(512, 64), b.arg(64, 128), b.arg(512, 128)
    h = b.op("neg", b.dot(x, w))
    g = b.op("mul", h, y)
    program = b.program(b.dot(b.op("transpose", x, permutation=(1, 0)), g))
    return program, partition(program, mesh=mesh, in_shardings=[P(batch), P(), P(batch)])


def test_a_batch_over_several_axes_is_a_batch_over_one():
    found = []
    for sizes in ((64,), (8, 8), (2, 4, 8), (2,) * 6):
        forget("partitioner.choice.layouts.TableHolder")
        names = tuple("abcdef"[:len(sizes)])
        _, done = step(auto(*sizes, names="abcdef"[:len(sizes)]), names)
        assert joint_axes(done.resolved) == ((names,) if len(names) > 1 else ())
        holder = layouts_for(done.resolved, Objective.of("bytes").prices(done.resolved.mesh))
        layouts = holder.layouts
        moved = collectives(done.local)
        found.append((len(layouts.costs), len(layouts.memo), total_received(done.local),
                      [c.op for c in moved]))
        assert [c.mesh_axes for c in moved] == [names] * len(moved)
    assert all(other == found[0] for other in found)


def test_a_sum_over_many_axes_is_planned_as_over_one(monkeypatch):
    tried = []
    moves = partial_sums._Search.moves
    monkeypatch.setattr(partial_sums._Search, "moves",
                        lambda *args: tried.append(1) or moves(*args))
    names = tuple("abcdefgh")
    mesh = AbstractMesh((2,) * 8, names)
    whole, rows = ((), ()), (names, ())
    assert plan(mesh, (512, 512), whole, whole, frozenset(names)).moves == (Move("psum", names),)
    assert plan(mesh, (512, 512), whole, rows, frozenset(names)).moves == (
        Move("reduce_scatter", names, 0),)
    assert len(tried) < 12


def test_values_are_right_where_axes_go_together():
    mesh = auto(2, 2, 2, names="abc")
    program, done = step(mesh, ("a", "b", "c"))
    rng = np.random.default_rng(0)
    args = [rng.integers(-3, 4, v.aval.shape).astype(v.aval.dtype) for v in program.invars]
    for got, want in zip(lockstep.run_local(done.local, args), lockstep.evaluate(program, args),
                         strict=True):
        lockstep.close(got, want)
