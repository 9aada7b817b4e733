"""Programs without a Python function: partition one that was parsed from text, and run it.

No devices are involved either: a program states its mesh.
"""
from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np

from ...arrays.storage import Stored, freeze_result
from ...engines.engine import ENGINES
from ...ir.diagnostics.diagnostic import clipped
from ...ir.diagnostics.errors import JaxRuntimeError, ShardtraceError, VerificationError
from ...ir.kernels.key_data import storage_dtype
from ...ir.passes import NEXT_PASS, Requests
from ...ir.program import Level, Program
from ...ir.spec import PartitionSpec
from ...partitioner.passes import PIPELINE, PartitionRequest
from ...partitioner.pipeline import DEFAULT_OPTIONS, left_out, partition
from ...partitioner.plans import planned

MOST_DIMS = 64           # of a numpy array
_FIRST = {Level.RESOLVED: "insert-reshards", Level.RESHARDED: "localize", Level.LOCAL: ""}


def further(program: Program, in_shardings: Sequence[PartitionSpec | None] = ()
            ) -> dict[str, Program]:
    """The stages from `program` (included) to the per-device program, by name.

    in_shardings: how the parameters of a TRACED program are split; Explicit axes of their types
      need not be repeated.
    """
    if program.level is Level.TRACED:
        given = asked_arguments(program, in_shardings)
        specs = [v.aval.spec if s is None and v.aval.has_explicit_mesh() else s
                 for s, v in zip(given, program.invars, strict=True)]
        return partition(program, mesh=program.mesh, in_shardings=specs).stages
    if any(s is not None for s in in_shardings):
        raise ValueError(f"a {program.level.value} program has its shardings already")
    stages = {program.level.value: program}
    first = program.attributes.get(NEXT_PASS) or _FIRST[program.level]
    request = PartitionRequest(program.mesh, (), (), DEFAULT_OPTIONS.judged(program),
                               left_out(program))
    names = [step.name for step in PIPELINE]
    if first == "optimize":
        first = next(step.name for step in PIPELINE if step.stage == "optimized")
    if first and first not in names:
        raise VerificationError(f"no pass is called {first!r}; there are {', '.join(names)}")
    passes = PIPELINE[names.index(first):] if first else ()
    return {**stages, **dict(planned(program, request, passes))}


def asked_arguments(program: Program, in_shardings: Sequence[PartitionSpec | None] = ()
                    ) -> list[PartitionSpec | None]:
    """How the parameters of a TRACED program are split: as given here, else as the program says."""
    known = program.attributes.get(Requests.KEY)
    given = list(in_shardings) or [None] * len(program.invars)
    return given if known is None else [
        t.spec if s is None and t is not None else s
        for s, t in zip(given, known.arguments, strict=True)]


def run_program(local: Program, values: Sequence[np.ndarray], engine: str = "simulated"
                ) -> list[np.ndarray]:
    """Run a per-device program on whole values; its whole results.

    Raises ValueError for a result that is a pending sum: it has no whole value.
    """
    for t in local.global_out:
        if t.unreduced:
            raise ValueError(f"a result is a pending sum, {t}: it has no whole value yet")
    mesh = next((t.mesh for t in (*local.global_in, *local.global_out) if t.mesh.axis_names),
                local.mesh)
    check_memory(local)
    try:
        run = ENGINES[engine].load(local, mesh)
        results = run([Stored(v) for v in values])
    except Exception as problem:
        if isinstance(problem, ShardtraceError) or hasattr(problem, "diagnostic"):
            raise
        notes = "".join(f" ({note})" for note in getattr(problem, "__notes__", ()))
        raise JaxRuntimeError(f"INTERNAL: {type(problem).__name__}: {clipped(str(problem))}"
                              f"{notes}") from problem
    return [freeze_result(r.data) if not r.lead else _first(r) for r in results]


def check_memory(local: Program) -> None:
    """Raise JaxRuntimeError where one value of the program is larger than this machine's memory,
    or has more dimensions than an array can have."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    bound = [v for eqn in local.walk() for v in eqn.outvars]
    whole = local.global_in or local.in_avals
    for t in dict.fromkeys([*whole, *(v.aval for v in (*local.constvars, *bound))]):
        if len(t.shape) > MOST_DIMS:
            raise JaxRuntimeError(f"INVALID_ARGUMENT: a value has {len(t.shape)} dimensions, and "
                                  f"an array {MOST_DIMS} at most")
        size = math.prod(t.shape) * storage_dtype(t.dtype).itemsize
        if size > memory:
            raise JaxRuntimeError(f"RESOURCE_EXHAUSTED: a value of type {t.str_short(True)} has "
                                  f"{size:,} bytes, and this machine {memory:,}")


def _first(stored: Stored) -> np.ndarray:
    """Where copies differ (check_vma=False), the first device's counts."""
    return stored.data[(0,) * len(stored.lead)]
