"""Every op, by its own samples: each operand split along each dimension, against the whole op.

This is the test of factor rules, of `resize` and of `localize`: a program of one equation is
partitioned with its operands laid out in every way that divides, run in step on all devices, and
compared with the op on whole values.
"""
from __future__ import annotations

import itertools

import hypothesis
import numpy as np
import pytest

import shardtrace.ir.ops.dialect  # noqa: F401
from shardtrace.ir.builder import ProgramBuilder
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.op import OPS, Op, Sample
from shardtrace.ir.program import Level, Program, Var
from shardtrace.ir.shardings.normalized import unsharded
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.types import array_type
from shardtrace.partitioner.pipeline import partition

from . import lockstep

MESHES = (AbstractMesh((2,), ("x",)), AbstractMesh((3,), ("x",)), AbstractMesh((2, 2), ("x", "y")))
# layouts tried per sample and mesh: 4, or 25 with --hypothesis-profile=thorough
MOST = max(4, hypothesis.settings().max_examples // 40)


def one_equation(op: Op, sample: Sample, mesh: AbstractMesh) -> Program:
    builder = ProgramBuilder(mesh, Level.TRACED)
    invars = [Var(array_type(np.shape(x), np.asarray(x).dtype,
                             sharding=unsharded(np.ndim(x), mesh)), f"x{i}")
              for i, x in enumerate(sample.operands)]
    results = builder.emit(op, invars, dict(sample.params))
    return Program(op.name, invars, builder.eqns, results, mesh=mesh)


def layouts(shape: tuple[int, ...], mesh: AbstractMesh) -> list[P]:
    """Whole; every dimension that divides over each axis; two axes on one or two dimensions."""
    out = [P()]
    axes = mesh.axis_names
    for d, n in enumerate(shape):
        for a in axes:
            if n and n % mesh.axis_size(a) == 0:
                out.append(P(*([None] * d), a))
    if len(axes) == 2:
        for d, e in itertools.permutations(range(len(shape)), 2):
            if shape[d] and shape[e] and shape[d] % 2 == 0 == shape[e] % 2:
                entries = [None] * len(shape)
                entries[d], entries[e] = axes
                out.append(P(*entries))
        for d, n in enumerate(shape):
            if n and n % 4 == 0:
                out.append(P(*([None] * d), ("y", "x")))
    return out


def cases():
    for name in sorted(OPS):
        op = OPS[name]
        if op.evaluate is None or op.samples is None or op.subprograms:
            continue
        yield pytest.param(op, id=name)


@pytest.mark.parametrize("op", list(cases()))
def test_op_gives_the_same_however_its_operands_are_split(op: Op) -> None:
    rng = np.random.default_rng(0)
    for mesh, sample in itertools.product(MESHES, op.samples()):
        program = one_equation(op, sample, mesh)
        want = lockstep.evaluate(program, list(sample.operands))
        ways = [layouts(v.aval.shape, mesh) for v in program.invars]
        results = [layouts(v.aval.shape, mesh) for v in program.outvars]
        combos = list(itertools.product(*ways))
        if len(combos) > MOST:
            combos = [combos[i] for i in rng.choice(len(combos), MOST, replace=False)]
        for specs in combos:
            outs = [None if rng.random() < 0.5 else r[rng.integers(len(r))] for r in results]
            done = partition(program, mesh=mesh, in_shardings=specs, out_shardings=outs)
            got = lockstep.run_local(done.local, list(sample.operands))
            for a, b in zip(got, want, strict=True):
                lockstep.close(a, b, (op.name, sample.params, specs, outs))
