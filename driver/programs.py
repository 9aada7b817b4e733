"""Programs by themselves: take one that was read from text further, and run it.

No function of the user's is involved and no devices either: a program states its mesh.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.program import DONATED, NEXT_PASS, Level, Program, Requests
from ..ir.spec import PartitionSpec
from ..ir.verify import verify
from ..partitioner.pipeline import PIPELINE, Job, noting, partition
from ..runtime.storage import Stored, settled
from .executable import EXECUTORS

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
    job = Job(program.mesh, (), ())
    names = [p.name for p in PIPELINE]
    first = program.memo.get(NEXT_PASS) or _FIRST[program.level]
    if first and first not in names:
        raise ValueError(f"no pass is called {first!r}; there are {', '.join(names)}")
    for step in PIPELINE[names.index(first):] if first else ():
        program = noting(step.run(program, job), DONATED, program.memo.get(DONATED))
        verify(program)
        stages[step.stage] = program
    return stages


def asked_arguments(program: Program, in_shardings: Sequence[PartitionSpec | None] = ()
                    ) -> list[PartitionSpec | None]:
    """How the parameters of a TRACED program are split: as given here, else as the program says."""
    known = program.memo.get(Requests.KEY)
    given = list(in_shardings) or [None] * len(program.invars)
    return given if known is None else [
        t.spec if s is None and t is not None else s
        for s, t in zip(given, known.arguments, strict=True)]


def run_program(local: Program, values: Sequence[np.ndarray], executor: str = "simulated"
                ) -> list[np.ndarray]:
    """Run a per-device program on whole values; its whole results.

    Raises ValueError for a result that is a pending sum: it has no whole value.
    """
    for t in local.global_out:
        if t.unreduced:
            raise ValueError(f"a result is a pending sum, {t}: it has no whole value yet")
    mesh = next((t.mesh for t in (*local.global_in, *local.global_out) if t.mesh.axis_names),
                local.mesh)
    run = EXECUTORS[executor](local, mesh)
    results = run([Stored(v) for v in values])
    return [settled(r.data) if not r.lead else _first(r) for r in results]


def _first(stored: Stored) -> np.ndarray:
    """Where copies differ (check_vma=False), the first device's counts."""
    return stored.data[(0,) * len(stored.lead)]
