"""The programs whose texts survey.py changes: of every op, every construct, every example.

`corpus()` has the golden dumps, tests/programs, a program for each sample of each op, and the
functions below (loops, branches, derivatives, callbacks, collectives, mapped functions), each with
its later stages. `examples()` are the dumps of examples/*.py, larger and slower.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.driver.execution.programs import further
from shardtrace.ir.builder import ProgramBuilder
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.op import OPS
from shardtrace.ir.program import Level, Program, Var
from shardtrace.ir.shardings.normalized import unsharded
from shardtrace.ir.text.print import print_program
from shardtrace.ir.types import array_type
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ..paths import EXAMPLES, GOLDEN, TESTS

MESH = st.make_mesh((4, 2), ("X", "Y"))
EXPLICIT = st.make_mesh((4, 2), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)
ROWS = np.arange(32, dtype=np.float32).reshape(8, 4)


def corpus() -> list[str]:
    """Texts of programs, without those of the examples."""
    texts: list[str] = []
    for path in sorted((GOLDEN / "dumps").glob("*.txt")):
        texts.extend(re.split(r"^# -- .*\n", path.read_text(), flags=re.MULTILINE)[1:])
    texts.extend(p.read_text() for p in sorted((TESTS / "programs").glob("*.st")))
    found: dict[str, None] = {}
    for text in texts:
        try:
            program = st.parse_program(text)
        except st.errors.ProgramSyntaxError:
            continue                                 # a listing that is no program
        found[text] = None
        found.update(dict.fromkeys(map(print_program, further(program).values())))
    for program in (*sampled(), *traced()):
        found.update(dict.fromkeys(map(print_program, further(program).values())))
    return list(found)


def sampled() -> Iterator[Program]:
    """A program of one equation for each sample of each op, over a mesh."""
    mesh = AbstractMesh((2,), ("X",))
    for name, op in sorted(OPS.items()):
        if op.samples is None or op.subprograms:
            continue
        for sample in op.samples()[:2]:
            operands = [Var(array_type(x.shape, x.dtype, sharding=unsharded(x.ndim, mesh)),
                            f"x{i}") for i, x in enumerate(map(np.asarray, sample.operands))]
            builder = ProgramBuilder(mesh, Level.TRACED)
            results = builder.emit(op, operands, dict(sample.params))
            yield Program(name, operands, builder.eqns, results, mesh=mesh)


def traced() -> Iterator[Program]:
    """What `jit` traces of the functions below."""
    for mesh, fun in ((MESH, loops), (MESH, branches), (MESH, derived), (MESH, called_back),
                      (MESH, collectives), (MESH, rows_moved), (EXPLICIT, explicit),
                      (EXPLICIT, explicit_loop), (MESH, drawn)):
        x = st.device_put(ROWS, st.NamedSharding(mesh, P("X")))
        with st.set_mesh(mesh), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield st.jit(fun).trace(x).jaxpr


def loops(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        carry = jnp.tanh(carry + row)
        return carry, carry.sum()

    total, sums = lax.scan(step, jnp.zeros(4), x, reverse=True)
    low, high = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, total))
    return lax.fori_loop(0, low, lambda i, v: v @ v.T @ v * i, x), high, sums


def branches(x: Any) -> Any:
    y = lax.cond(x.sum() > 0, lambda v: jnp.sin(v), lambda v: v[::-1], x)
    y = lax.switch(2, [jnp.cos, jnp.exp, lambda v: v.cumsum(0)], y)
    return st.jit(lambda v: jnp.where(v > 1, v, 0))(y), jnp.sort(y, axis=1), lax.top_k(y, 2)


@st.custom_vjp
def halved(x: Any) -> Any:
    return x / 2


halved.defvjp(lambda x: (x / 2, x), lambda x, g: (g * x,))


@st.custom_jvp
def doubled(x: Any) -> Any:
    return x * 2


doubled.defjvp(lambda primals, tangents: (doubled(primals[0]), tangents[0] * 3))


def derived(x: Any) -> Any:
    def loss(v: Any) -> Any:
        kept = st.checkpoint(lambda u: jnp.sin(u) * doubled(halved(u)))
        return lax.scan(lambda c, r: (c * kept(r), None), jnp.ones(4), v)[0].sum()

    return halved(x), doubled(x), st.grad(loss)(x), st.vmap(jnp.dot)(x, x)


def called_back(x: Any) -> Any:
    st.debug.print("{} of {y.shape}", x, y=x)
    st.debug.callback(print, x)
    y = st.pure_callback(np.sin, st.ShapeDtypeStruct(x.shape, x.dtype), x)
    return y + 1


@partial(st.shard_map, mesh=MESH, in_specs=P("X", "Y"), out_specs=P("X", "Y"))
def collectives(x: Any) -> Any:
    y = lax.psum(x, "X") + lax.pmax(x, "Y") * lax.axis_index("X")
    y = lax.ppermute(y, "X", [(i, (i + 1) % 4) for i in range(4)])
    y = lax.all_gather(y, "Y", axis=1, tiled=True)
    y = lax.psum_scatter(y, "Y", scatter_dimension=1, tiled=True)
    return lax.all_to_all(y, "Y", 0, 0, tiled=True) + lax.fori_loop(
        0, 2, lambda i, v: lax.pmean(v, ("X", "Y")) + x, x)


def rows_moved(x: Any) -> Any:
    i = jnp.array([3, 1, 2])
    image = x.reshape(1, 1, 8, 4)
    return (x[i], x.at[i].add(1), lax.dynamic_slice(x, (1, 0), (3, 4)), jnp.pad(x, 1), x[1:7:2],
            lax.conv(image, image[:, :, :3, :3], (1, 1), "SAME"), jnp.concatenate([x, x[::-1]]),
            jnp.einsum("ij,kj->ik", x, x), x.argmax(1), jnp.linalg.cholesky(x.T @ x + jnp.eye(4)))


def explicit(x: Any) -> Any:
    y = st.sharding.reshard(x, P(None, "Y"))
    z = jnp.einsum("ij,jk->ik", x, jnp.ones((4, 4)), out_sharding=P("X", None))
    return y.sum(1), st.shard_map(lambda v: lax.psum(v, "X"), in_specs=P("X"), out_specs=P())(z)


def explicit_loop(x: Any) -> Any:
    return lax.scan(lambda c, r: (c + r, c * 2), jnp.zeros(4), st.sharding.reshard(x, P()))


def drawn(x: Any) -> Any:
    key = st.random.key(0)
    return st.random.normal(key, x.shape) + x, st.random.split(key), jnp.fft.fft(x)


def examples() -> list[str]:
    """The texts that examples/*.py dump, of every stage and pass; runs those that need no extra."""
    texts: dict[str, None] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((EXAMPLES).glob("*.py")):
            subprocess.run([sys.executable, path], cwd=folder, check=True, capture_output=True,
                           env={**os.environ, "SHARDTRACE_DUMP": f"{folder}/{path.stem}"})
        for dump in sorted(Path(folder).glob("*/*.st")):
            texts[dump.read_text()] = None
    return list(texts)
