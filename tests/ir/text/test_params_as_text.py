"""Every op's params survive the text form: values and their classes."""
from __future__ import annotations

import numpy as np

from shardtrace.ir.builder import ProgramBuilder
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.meshes.mesh import empty_abstract_mesh
from shardtrace.ir.ops.dialect import OPS, Op
from shardtrace.ir.program import Level, Program, Var
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.types import array_type

from ...rows import rows


@rows("op", [op for op in OPS.values() if op.samples])
def test_params_of_samples_come_back(op: Op) -> None:
    assert op.samples is not None
    for sample in op.samples():
        operands = [Var(array_type(np.shape(x), np.asarray(x).dtype)) for x in sample.operands]
        builder = ProgramBuilder(empty_abstract_mesh, Level.TRACED)
        out = builder.emit(op, operands, dict(sample.params))
        program = Program("f", operands, builder.eqns, out)
        again = parse_program(str(program))
        assert programs_equal(program, again)
        for name, value in program.eqns[0].params.items():
            assert type(again.eqns[0].params[name]) is type(value)
