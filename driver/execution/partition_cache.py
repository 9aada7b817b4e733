"""An LRU cache of partitioned programs, with their plans.

A function that is jitted in a loop, `lax.scan` of a lambda outside of jit, or a notebook cell that
is run again is traced anew each time, to the same program from the same lines. It is found here
instead of being partitioned again.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.fingerprint import fingerprint
from ...ir.meshes.mesh import AbstractMesh
from ...ir.passes import DONATED
from ...ir.program import Program
from ...ir.settings.context import config
from ...ir.support.caches import ProgramCache
from ...ir.support.collector import collector_paused
from ...partitioner.dumps import Dump
from ...partitioner.pipeline import Options, Partitioned, partition
from ...partitioner.propagation.divisibility import warnings_given
from ...runtime.plans.draft import recording_plans
from ...runtime.rewrites.pipeline import EXECUTION, dump_bodies, run_execution_passes

# An equation is some 2 kB.
_CACHE = ProgramCache("driver.execution.partition_cache", "programs that were partitioned lately",
                      most=50_000, smallest=100)


class _First:
    """The first program of an outline. own: its fingerprint, which is made for a second one."""

    __slots__ = ("made", "own", "program")

    def __init__(self, program: Program, made: Partitioned) -> None:
        self.program, self.made = program, made
        self.own: tuple | None = None

    def fingerprint(self) -> tuple | None:
        if self.own is None:
            self.own = fingerprint(self.program)
        return self.own


def partition_cached(program: Program, *, mesh: AbstractMesh, in_shardings: tuple,
                     out_shardings: tuple, options: Options) -> Partitioned:
    """`partition(...)`, or the earlier result for an indistinguishable program."""
    def make(key: Any = None) -> Partitioned:
        warned = warnings_given()
        made = partition(program, mesh=mesh, in_shardings=in_shardings,
                         out_shardings=out_shardings, options=options)
        if key is not None and warnings_given() == warned:      # a warning is due each time
            _CACHE.keep(key, _First(program, made) if key is outline else made,
                        len(made.local.eqns))
        return made

    if config.read("shardtrace_dump"):
        return make()
    requested = (mesh, in_shardings, out_shardings, options, options.judged(program),
                 config.read("shardtrace_check"), config.read("shardtrace_skip"),
                 program.attributes.get(DONATED))
    outline = program.name, program.mesh, len(program.eqns), program.in_avals, requested
    first = None
    if not _captures(program):              # what is captured may have changed when it is asked for
        first = _CACHE.look(outline)
        if first is None:
            return make(outline)
    with collector_paused():
        own = fingerprint(program)
        if own is None:
            return make()
        if first is not None and first.fingerprint() == own:
            _CACHE.get(outline)                # it is used
            return first.made
        key = own, requested
        return _CACHE.get(key) or make(key)


def _captures(program: Program) -> bool:
    """Does the program, or one that it holds, capture arrays?"""
    return bool(program.consts) or (program.holds_programs and any(
        [_captures(inner) for _, _, inner in program.subprograms()]))


def plan_cached(program: Program, mesh: AbstractMesh,
                compiler: Callable[[Program, AbstractMesh], Any]) -> Any:
    """`compiler(program, mesh)`, kept with the LOCAL program; what it gives has no state."""
    key = ("planned", compiler, mesh, config.read("shardtrace_skip"),
           config.read("shardtrace_allow_excess_precision"))
    found = program.memo.get(key)
    if found is None:
        dump: Dump | None = program.attributes.get(Dump.KEY)
        if dump is None:
            with collector_paused():
                found = compiler(program, mesh)
        else:
            dump_bodies(run_execution_passes(program, dump.execution), dump.execution)
            with recording_plans() as plans:
                found = compiler(program, mesh)
            dump.plans(len(EXECUTION), plans)
        program.memo[key] = found
    return found
