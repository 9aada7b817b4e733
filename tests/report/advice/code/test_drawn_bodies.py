"""Whatever change of code is proposed for a drawn `shard_map` body computes the same.

Bodies gather or sum along one or both of two mesh axes, compute something, and read a part that an
index along either axis names. Each proposal, and all of a body together, is made on the per-device
executor, and typed in.
"""
from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest

import shardtrace as st
from shardtrace.driver.execution.programs import run_program
from shardtrace.ir.program import Program
from shardtrace.ir.rewriting.inline import inline
from shardtrace.partitioner.pipeline import partition
from shardtrace.report.advice.code.changes import Rewritten, sites
from shardtrace.report.advice.line_diffs import line_diffs
from shardtrace.report.reasons.causes import where

from ....user_files import user_file, user_module

SOURCE = """\
import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import NamedSharding, PartitionSpec as P

mesh = st.make_mesh((2, 4), ("x", "y"))


def body(a):
    whole = {exchange}
    made = {made}
    return {read}


f = st.shard_map(body, mesh=mesh, in_specs=P({rows}), out_specs=P(("x", "y")), check_vma=False)
args = (st.ShapeDtypeStruct((256, 64), np.float32, sharding=NamedSharding(mesh, P({rows}))),)
"""
AXES = ('"x"', '"y"', '("x", "y")')
EXCHANGES = ("lax.all_gather(a, {axes}, axis={d}, tiled=True)", "lax.all_gather(a, {axes})",
             "lax.psum(a, {axes})", "lax.psum_scatter(a, {axes}, tiled=True)")
MADE = ("whole", "whole * 2 + 1", "jnp.tanh(whole)", "jnp.flip(whole, 0)",
        "whole - whole.mean(0)", "jnp.concatenate([whole, whole * 3], 0)",
        "whole * whole[0, 0]", "whole + a[:1]")
INDICES = ("lax.axis_index({axes})", "({n} - 1 - lax.axis_index({axes}))",
           "(lax.axis_index({axes}) + 1) % {n}", "lax.axis_index({axes}) // 2", "0", "1")
READS = ("lax.dynamic_slice_in_dim(made, {index} * {k}, {k}, {d})", "made[{index}]",
         "made[{index}] + a.sum()", "made.max(0, keepdims=True)", "made.mean(0, keepdims=True)",
         "jnp.exp(made - made.max(0, keepdims=True)).sum(0)[None]",
         "(jnp.exp(made) / jnp.exp(made).sum({d}, keepdims=True)).mean(0)[None]",
         "(made / jnp.abs(made).sum({d}, keepdims=True)).T @ made",
         "jnp.take_along_axis(made, (a[:1] > 0).astype(int), 0)",
         "jnp.take_along_axis(made, jnp.arange(5)[None], axis=1)",
         "lax.top_k(made, 2)[0]", "jnp.sort(made, 0)[:4]", "made[:4] * lax.axis_index({axes})",
         "made[1:3]", "made[jnp.array([0, 2])]")


def drawn(seed: int) -> str:
    """The text of a program; it may not type-check."""
    rng = np.random.default_rng(seed)

    def one(of: tuple) -> str:
        return of[rng.integers(len(of))]

    d, exchanged = rng.integers(2), one(AXES)
    read = one((exchanged, *AXES))
    given = {"axes": read, "n": {'"x"': 2, '"y"': 4}.get(read, 8), "d": d,
             "k": one((8, 16, 32, 64, 128))}
    return SOURCE.format(
        exchange=one(EXCHANGES).format(axes=exchanged, d=d), made=one(MADE), rows=one(AXES),
        read=one(READS).format(index=one(INDICES).format(**given), **given))


def changed(program: Program) -> Iterator[Rewritten]:
    """The changes of code that apply to a program."""
    for site in sites(program):
        yield Rewritten(site.change.rewrite.name, where(site.location), site.change, site.location,
                        (site,))


def values(program: Program, x: np.ndarray) -> np.ndarray:
    """What a program gives for its argument, device by device."""
    local = partition(program, mesh=program.mesh, in_shardings=[program.invars[0].aval.spec]).local
    return run_program(local, [x], "per_device")[0]


@pytest.mark.parametrize("seed", range(0, 500, 50))
def test_changes_of_a_drawn_body_compute_the_same(seed, tmp_path):
    count = 0
    for n in range(seed, seed + 50):
        source = drawn(n)
        with user_module(user_file(tmp_path, source)) as module:
            try:
                program = inline(st.jit(module.f).trace(*module.args).jaxpr)
            except (TypeError, ValueError, IndexError):
                continue
            x = np.random.default_rng(n).standard_normal((256, 64)).astype(np.float32)
            found = [*changed(program)]
            for changes in dict.fromkeys([*[(c,) for c in found], tuple(found)]) if found else ():
                wanted, count = values(program, x), count + 1
                near = {"rtol": 1e-4, "atol": 1e-4,
                        "err_msg": "\n".join([source, *[c.text for c in changes]])}
                made = functools.reduce(lambda p, c: c.made(p), changes, program)
                np.testing.assert_allclose(values(made, x), wanted, **near)
                typed = source
                for now, then in line_diffs(changes):
                    typed = typed.replace(now, then)
                if typed != source:
                    with user_module(user_file(tmp_path, typed)) as other:
                        np.testing.assert_allclose(
                            values(st.jit(other.f).trace(*other.args).jaxpr, x), wanted, **near)
    assert count > 5
