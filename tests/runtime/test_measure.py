"""Every change of spec, run on both executors: the values stay, and the bytes are as announced."""
from __future__ import annotations

import random

import numpy as np
import pytest

import shardtrace as st
from shardtrace import lax
from shardtrace import numpy as jnp
from shardtrace.arrays.storage import Stored
from shardtrace.ir.builder import ProgramBuilder
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.op import OPS
from shardtrace.ir.program import Level, Program, Var
from shardtrace.ir.spec import spec_from_entries
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.text.print import print_program
from shardtrace.ir.types import array_type
from shardtrace.ir.verify import verify
from shardtrace.partitioner.collectives import collectives
from shardtrace.partitioner.pipeline import partition
from shardtrace.partitioner.redistribution.redistribute import plan
from shardtrace.runtime import measure
from shardtrace.runtime.per_device.executor import compile_per_device
from shardtrace.runtime.simulation.executor import compile_simulated
from shardtrace.sharding import NamedSharding, PartitionSpec

from ..rows import rows
from ..specs import specs

MESHES = {"2x4": AbstractMesh((2, 4), ("x", "y"), (AxisType.Auto,) * 2),
          "2x2x2": AbstractMesh((2, 2, 2), ("x", "y", "z"), (AxisType.Auto,) * 3),
          "4x2x3": AbstractMesh((4, 2, 3), ("x", "y", "z"), (AxisType.Auto,) * 3)}
KINDS = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"}


def resharding(mesh, shape, a, b):
    """The per-device program of x -> x with these specs."""
    builder = ProgramBuilder(mesh, Level.TRACED)
    x = Var(array_type(shape, np.dtype(np.float32)), "x")
    y = builder.emit(OPS["neg"], builder.emit(OPS["neg"], [x]))
    program = Program("change", [x], builder.eqns, y, mesh=mesh, level=Level.TRACED)
    return partition(program, mesh=mesh, in_shardings=[spec_from_entries(a)],
                     out_shardings=[spec_from_entries(b)]).local


def formula(record):
    """Bytes received, from what else the record says."""
    b, n = record.operand_bytes, record.group_size
    return {"all-reduce": 2 * (n - 1) * b // n, "all-gather": (n - 1) * b,
            "reduce-scatter": (n - 1) * b // n, "all-to-all": (n - 1) * b // n,
            "collective-permute": b}[record.kind]


def check(mesh, shape, a, b):
    local = resharding(mesh, shape, a, b)
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for compiler in (compile_per_device, compile_simulated):
        (out,) = compiler(local, mesh)([Stored(value)])
        np.testing.assert_array_equal(out.data, value)
    records, found = collectives(local), measure(local, value)
    assert [r.equation for r in records] == [m.equation for m in found]
    for record, measured in zip(records, found, strict=True):
        assert record.kind == measured.kind and record.kind in KINDS
        assert measured.busiest == record.received_bytes == formula(record), (a, b, record)
        assert measured.runs == record.count == 1
    figures = plan(mesh, shape, a, b)
    assert sum(r.total for r in records) == 4 * figures.bound, (a, b)
    text = print_program(local)
    again = parse_program(text)
    verify(again)
    assert print_program(again) == text


@pytest.mark.usefixtures("by_bytes")                # by time more may move, in fewer steps
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("name", MESHES)
def test_a_change_of_spec_moves_what_the_bound_says(name, rank):
    mesh = MESHES[name]
    every = specs(mesh, rank)
    pairs = [(a, b) for a in every for b in every if a != b]
    for a, b in random.Random(rank).sample(pairs, 50):
        check(mesh, (24,) * rank if name == "4x2x3" else (16,) * rank, a, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", MESHES)
def test_all_changes_of_spec_of_matrices_move_what_the_bound_says(name):
    mesh = MESHES[name]
    every = specs(mesh, 2)
    pairs = [(a, b) for a in every for b in every if a != b]
    for a, b in random.Random(0).sample(pairs, min(len(pairs), 1000)):
        check(mesh, (24, 24) if name == "4x2x3" else (16, 16), a, b)


# -- whole programs -------------------------------------------------------------------------------

def loop(x):
    return lax.fori_loop(0, 5, lambda i, c: c + x.sum(0, keepdims=True) * 0.5, x)


def while_loop(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + jnp.sum(x)),
                          (0, jnp.float32(1)))[1]


PROGRAMS = {
    "sum": lambda x: x.sum(),
    "softmax": lambda x: jnp.exp(x - x.max(0)) / jnp.exp(x - x.max(0)).sum(0),
    "product": lambda x: x @ x.T,
    "gram": lambda x: x.T @ x,
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "roll": lambda x: jnp.roll(x, 3, 0),
    "sort": lambda x: jnp.sort(x, 0),
    "flip": lambda x: x[::-1, ::-1],
    "loop": loop,
    "while": while_loop,
    "gradient": lambda x: st.grad(lambda w: jnp.tanh(x @ w).sum())(x.T),
    "convolution": lambda x: lax.conv_general_dilated(x[None, None], jnp.ones((1, 1, 3, 3)),
                                                      (1, 1), "SAME")[0, 0],
}


@rows("spec", [("x", "y"), ("y", "x"), (("x", "y"), None), (None, "y")])
@rows("name", PROGRAMS)
def test_the_meter_and_the_records_agree_on_programs(name, spec):
    mesh = st.make_mesh((2, 4), ("x", "y"))
    value = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    x = st.device_put(value, NamedSharding(mesh, PartitionSpec(*spec)))
    compiled = st.jit(PROGRAMS[name]).lower(x).compile()
    records, found = compiled.collectives(), measure(compiled, x)
    assert len(records) == len(found)
    for record, measured in zip(records, found, strict=True):
        assert record.equation is measured.equation
        assert measured.busiest == record.total, (record, measured)
        assert measured.runs == record.count
        assert record.kind in KINDS and record.group_size > 1
        assert set(record.mesh_axes) <= {"x", "y"} and record.reason
        assert record.source.file == __file__ and record.source.line > 0


def test_a_branch_counts_where_it_runs():
    mesh = st.make_mesh((8,), ("x",))
    x = st.device_put(np.ones((16, 4), np.float32), NamedSharding(mesh, PartitionSpec("x")))
    compiled = st.jit(lambda p, x: lax.cond(p, lambda x: x.max(0), lambda x: x[0], x)).lower(
        True, x).compile()
    assert all(r.conditional for r in compiled.collectives())
    ran = {p: [m.runs for m in measure(compiled, p, x)] for p in (True, False)}
    assert sum(map(sum, ran.values())) == len(compiled.collectives())


def test_permutations_that_move_nothing_are_no_collectives():
    mesh = st.make_mesh((8,), ("x",))

    def body(x, perm):
        return lax.ppermute(x, "x", perm)

    def records(perm):
        f = st.shard_map(lambda x: body(x, perm), mesh=mesh, in_specs=PartitionSpec("x"),
                         out_specs=PartitionSpec("x"))
        x = st.device_put(np.arange(16, dtype=np.float32), NamedSharding(mesh, PartitionSpec("x")))
        compiled = st.jit(f).lower(x).compile()
        return compiled.collectives(), measure(compiled, x)

    assert records([(i, i) for i in range(8)]) == ([], [])
    (record,), (measured,) = records([(0, 1)])
    assert record.kind == "collective-permute"
    assert record.received_bytes == measured.busiest == record.operand_bytes == 8
    assert measured.received.tolist() == [0, 8, 0, 0, 0, 0, 0, 0]


def test_measure_refuses_arguments_of_other_types():
    compiled = st.jit(lambda x: x + 1).lower(np.ones(3, np.float32)).compile()
    with pytest.raises(TypeError, match="compiled"):
        measure(compiled, np.ones(4, np.float32))
