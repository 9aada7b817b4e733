"""Every op that a per-device program may have is known to every engine."""
from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

import shardtrace.ir.ops.dialect  # noqa: F401
from shardtrace.engines.xla import collectives, control, helpers, ops
from shardtrace.ir.builder import ProgramBuilder
from shardtrace.ir.facts import IDENTITY, POSITION
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.op import OPS, Op
from shardtrace.ir.ops.control.custom import CALLS
from shardtrace.ir.program import Equation, Level, Var
from shardtrace.ir.shardings.normalized import unsharded
from shardtrace.ir.types import array_type
from shardtrace.runtime.simulation import executor

MESH = AbstractMesh((2,), ("x",))
RUN = sorted(name for name, op in OPS.items()
             if executor._strategy(op) is not executor.Planner.unsupported)


def sampled(op: Op) -> list[Equation]:
    """Equations of an op, of its samples."""
    builder = ProgramBuilder(MESH, Level.TRACED)
    for sample in [] if op.samples is None else op.samples():
        arrays = map(np.asarray, sample.operands)
        builder.emit(op, [Var(array_type(x.shape, x.dtype, sharding=unsharded(x.ndim, MESH)))
                          for x in arrays], dict(sample.params))
    return builder.eqns


def test_what_runs_in_numpy_is_declared_by_the_op_or_has_a_strategy() -> None:
    assert {name for name, op in OPS.items() if op.evaluate is not None or op.collective} <= {*RUN}


@pytest.mark.parametrize("name", RUN)
def test_every_op_that_runs_in_numpy_has_a_function_of_jax(name: str, jax: Any) -> None:
    """It is there, under the name that is written; the other tests say that it is the right one."""
    op = OPS[name]
    if op.collective is not None and IDENTITY not in op.facts:
        assert name.removeprefix("variadic_") in collectives.WRITERS
    elif name not in CALLS and name not in control.CONTROL and not (
            op.effect or POSITION in op.facts):
        known: dict[str, Any] = {
            **vars(helpers), "jax": jax, "jnp": jax.numpy, "lax": jax.lax,
            "linalg": jax.lax.linalg, "primitives": jax.extend.core.primitives}
        for eqn in sampled(op):
            text = ops.expression(eqn, [f"x{i}" for i in range(len(eqn.invars))])
            assert text is not None
            declared = "" if callable(op.jax) else op.jax.partition("(")[0]
            assert text.startswith(f"{declared}(" if declared else "")
            for node in ast.walk(ast.parse(text, mode="eval")):
                if isinstance(node, ast.Call):
                    assert callable(eval(ast.unparse(node.func), known)), text
        if op.samples is None:
            assert (op.jax or name in ops.WRITERS or IDENTITY in op.facts
                    or hasattr(jax.lax, name))
