"""Programs that were partitioned lately.

A function that is jitted in a loop, `lax.scan` of a lambda outside of jit, or a cell of a notebook
that runs again is traced anew each time, to the same program from the same lines: it is found here,
with its plan, instead of being partitioned once more.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.collector import collector_paused
from ..ir.context import config
from ..ir.fingerprint import fingerprint
from ..ir.kept import Kept
from ..ir.mesh import AbstractMesh
from ..ir.program import Program
from ..partitioner.graph import warnings_given
from ..partitioner.pipeline import Options, Partitioned, partition

_kept = Kept(most=50_000, smallest=100)         # an equation is some 2 kB


def partitioned(program: Program, *, mesh: AbstractMesh, in_shardings: tuple, out_shardings: tuple,
                options: Options) -> Partitioned:
    """`partition(...)`, or what it gave for a program that cannot be told from this one."""
    def make() -> Partitioned:
        return partition(program, mesh=mesh, in_shardings=in_shardings,
                         out_shardings=out_shardings, options=options)
    with collector_paused():
        own = None if config.shardtrace_dump else fingerprint(program)
        if own is None:
            return make()
        key = (own, mesh, in_shardings, out_shardings, options, config.shardtrace_check)
        found = _kept.get(key)
        if found is not None:
            return found
        warned = warnings_given()
        made = make()
        if warnings_given() == warned:          # a warning is due each time
            _kept.keep(key, made, len(made.local.eqns))
        return made


def forget_recent() -> None:
    """Forget all of them."""
    _kept.clear()


def planned(program: Program, mesh: AbstractMesh, compiler: Callable[[Program, AbstractMesh], Any]
            ) -> Any:
    """`compiler(program, mesh)`, kept with the LOCAL program; what it gives has no state."""
    key = ("planned", compiler, mesh)
    found = program.memo.get(key)
    if found is None:
        found = program.memo[key] = compiler(program, mesh)
    return found
