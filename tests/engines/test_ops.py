"""Every op on all engines: its samples, operands laid out over a mesh as a seed draws it.

The ops of a folder are one program, so that XLA compiles a few programs and not hundreds.
"""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace.ir.ops.dialect  # noqa: F401
from shardtrace.arrays.storage import Stored
from shardtrace.ir.builder import ProgramBuilder
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.op import OPS, Sample
from shardtrace.ir.program import Level, Program, Var
from shardtrace.ir.shardings.normalized import unsharded
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.types import array_type
from shardtrace.partitioner.pipeline import partition

from ..references.interpreter import COARSE
from .conftest import ON_RANKS, on_all

pytestmark = [pytest.mark.every_engine, pytest.mark.usefixtures("jax")]
MESH = AbstractMesh((2, 2), ("x", "y"))
TOGETHER = 10
# Many results are right: of decompositions; of what says nothing of its content.
OTHERS_ARE_RIGHT = {"eigh", "svd", "eig", "qr", "schur", "hessenberg", "tridiagonal", "geqrf",
                    "householder_product", "empty"}
# Programs are not made of these: an executor's rewrites are.
NEVER_THERE = {"floor_div", "solve", "trunc"}


def _sampled() -> list[str]:
    return [name for name, op in sorted(OPS.items())
            if op.evaluate is not None and op.samples is not None and not op.subprograms
            and name not in OTHERS_ARE_RIGHT | NEVER_THERE]


NAMES = _sampled()
FINE = [n for n in NAMES if n not in COARSE]
GROUPS = [FINE[i::-(-len(FINE) // TOGETHER)] for i in range(-(-len(FINE) // TOGETHER))]


def _layout(shape: tuple[int, ...], rng: np.random.Generator) -> P:
    entries: list[tuple[str, ...]] = [()] * len(shape)
    for axis in rng.permutation(["x", "y"]):
        dims = [d for d, n in enumerate(shape) if n and n % (2 ** (len(entries[d]) + 1)) == 0]
        if dims and rng.random() < 0.8:
            d = int(rng.choice(dims))
            entries[d] = (*entries[d], str(axis))
    return P(*entries)


def check(names: list[str], seed: int, tolerance: float, most: int = 3) -> None:
    rng = np.random.default_rng(seed)
    builder = ProgramBuilder(MESH, Level.TRACED)
    invars, values, specs, results, about = [], [], [], [], []
    for name in names:
        op = OPS[name]
        samples: list[Sample] = list(op.samples())            # type: ignore[misc]
        chosen = rng.choice(len(samples), min(most, len(samples)), replace=False)
        for sample in [samples[i] for i in sorted(chosen)]:
            mine = []
            for x in map(np.asarray, sample.operands):
                mine.append(Var(array_type(x.shape, x.dtype, sharding=unsharded(x.ndim, MESH)),
                                f"{name.replace('-', '_')}_{len(invars) + len(mine)}"))
                values.append(Stored(x))
                specs.append(_layout(x.shape, rng))
            invars += mine
            made = builder.emit(op, mine, dict(sample.params))
            results += made
            about += [f"{name} {dict(sample.params)} {specs[-len(mine):]}"] * len(made)
    program = Program("ops", invars, builder.eqns, results, mesh=MESH)
    outs = [_layout(v.aval.shape, rng) if rng.random() < 0.5 else None for v in results]
    local = partition(program, mesh=MESH, in_shardings=specs, out_shardings=outs).local
    on_all(local, MESH, values, about, tolerance)


@pytest.mark.parametrize("group", range(0, len(GROUPS), 1 if ON_RANKS else 4))
def test_ops_give_the_same_on_all_engines(group: int) -> None:
    check(GROUPS[group], group, 2e-5)


@pytest.mark.slow
def test_special_functions_give_about_the_same_on_all_engines() -> None:
    check([n for n in NAMES if n in COARSE], 0, 2e-3, most=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("group", range(len(GROUPS)))
def test_ops_give_the_same_on_all_engines_however_they_are_laid_out(group: int, seed: int) -> None:
    check(GROUPS[group], 1000 * seed + group, 2e-5, most=12)
