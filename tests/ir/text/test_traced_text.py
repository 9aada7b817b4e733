"""Text of programs that were traced: the user's names and lines, at every stage of partitioning."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.op import OPS
from shardtrace.ir.ops import dialect  # noqa: F401
from shardtrace.ir.program import Program
from shardtrace.ir.settings.context import abstract_mesh_context
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.types import array_type
from shardtrace.ir.verify import verify
from shardtrace.partitioner.pipeline import partition
from shardtrace.tracer.shard_map.shard_map import shard_map
from shardtrace.tracer.staging.staging import trace_to_program

E, A = AxisType.Explicit, AxisType.Auto
DOT = {"dimension_numbers": (((1,), (0,)), ((), ())), "precision": None,
       "preferred_element_type": None, "out_sharding": None}
TABLE = np.arange(32, dtype=np.float32)


def layer(x, w, b):
    h = OPS["dot_general"].bind(x, w, **DOT)
    wide = OPS["broadcast_in_dim"].bind(b, shape=(64, 32), broadcast_dimensions=(1,), sharding=None)
    y = OPS["add"].bind(h, wide)
    total = OPS["reduce_sum"].bind(OPS["mul"].bind(y, 2.0), axes=(0,), out_sharding=None)
    return [OPS["tanh"].bind(y), OPS["add"].bind(total, TABLE)]


def traced(f, mesh: AbstractMesh, *specs: P, shapes=((64, 16), (16, 32), (32,))) -> Program:
    types = [array_type(shape, np.dtype("float32"), sharding=NamedSharding(mesh, spec))
             for shape, spec in zip(shapes, specs, strict=True)]
    with abstract_mesh_context(mesh):
        return trace_to_program(f, types, name=f.__name__, arg_names="xwb"[:len(types)])[0]


def check(program: Program) -> str:
    verify(program)
    text = str(program)
    again = parse_program(text)
    assert programs_equal(again, program)
    assert str(again) == text
    verify(again)
    for a, b in zip(again.eqns, program.eqns, strict=True):
        assert (a.location.file, a.location.line, a.location.column) == (
            b.location.file, b.location.line, b.location.column)
    return text


@pytest.mark.parametrize("kinds", [(E, E), (A, A), (A, E)], ids=str)
def test_every_stage_of_a_program_is_its_text(kinds):
    mesh = AbstractMesh((2, 4), ("X", "Y"), kinds)
    inner = "Y" if kinds[1] is A else None
    program = traced(layer, mesh, *([P("X" if kinds[0] is E else None, inner), P(inner), P()]))
    text = check(program)
    names = [line.split(":")[0].strip() for line in text.splitlines() if " = " in line]
    assert [n for n in names if len(n) > 1 and " " not in n and n[0] != "%"] == ["wide", "total"]
    assert f"# test_traced_text.py:{layer.__code__.co_firstlineno + 1}:9-" in text
    done = partition(program, mesh=mesh, in_shardings=[P("X", inner), P(inner), P()])
    for stage in done.stages.values():
        check(stage)


def test_the_body_of_a_shard_map_states_its_mesh():
    mesh = AbstractMesh((2, 4), ("X", "Y"), (A, A))

    def outer(x, w):
        def body(x, w):
            m = OPS["dot_general"].bind(x, w, **DOT)
            return OPS["psum_invariant"].bind(m, axes=("Y",))
        return [shard_map(body, mesh=mesh, in_specs=(P("X", "Y"), P("Y")), out_specs=P("X"))(x, w)]

    program = traced(outer, mesh, P(), P(), shapes=((64, 16), (16, 32)))
    text = check(program)
    assert "jaxpr = mesh (X=2 manual, Y=4 manual) @body(" in text
    assert "# all-reduce over Y, 6,144 B received per device, test_traced_text.py" in text
    done = partition(program, mesh=mesh)
    for stage in done.stages.values():
        check(stage)
