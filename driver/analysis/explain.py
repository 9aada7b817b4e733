"""`explain`: why a function communicates, what that costs, and what would avoid it."""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.program import Level, Program
from ...ir.settings.context import config
from ...partitioner.cost.hardware import Hardware
from ...partitioner.cost.hardware import hardware as find_hardware
from ...partitioner.cost.topology import Topology
from ...partitioner.pipeline import Partitioned
from ...report.advice.suggestions import SECONDS
from ...report.advice.trials import Subject
from ...report.explanation import Explanation
from ..jit.jit import jit
from ..jit.jitted import Jitted
from ..jit.stages import Compiled, Lowered
from .applied_changes import DecidedSubject, ProgramSubject, TracedSubject


def explain(fun: Callable[..., Any], hardware: str | Hardware | None = None, *,
            topology: Sequence[int] | Topology | None = None, slices: int | None = None,
            trials: int | None = None, suggest_seconds: float = SECONDS
            ) -> Callable[..., Explanation]:
    """A function that explains `fun`, jitted or not, for arguments: arrays or ShapeDtypeStructs.

    hardware: "v4", "v5e", "v5p", "v6e", "7x", "a100", "h100", "h200", "b200", "cpu", or a Hardware,
    for which the plan is made; by default what `fun` asks for, else the configuration ("v5p").
    topology: the shape of a slice's torus, such as (8, 16, 16), or a `Topology`; by default one in
    which the mesh axes have the most bandwidth. slices: of how many slices or nodes.
    suggest_seconds: about how long changes that avoid collectives are tried, those for all
    collectives together; it is counted in equations, so the same is found on any machine, and what
    was left untried is reported. trials: how many are tried for each collective, however long that
    takes.
    Raises what tracing and partitioning raise, and ValueError for a mesh that does not fit.

    Sharding
      Auto: collectives that the partitioner chose have its reasons, and suggestions.
      Explicit: those that `reshard`, `out_sharding` or a contraction over a split dimension caused.
      Manual: those that are written in `shard_map`, with their cost.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
    >>> found = st.explain(lambda a: a.sum(0))(a)
    >>> [(c.kind, c.mesh_axes, c.received_bytes) for c in found.collectives]
    [('all-reduce', ('x',), 448)]
    """
    jitted = fun if isinstance(fun, Jitted) else jit(fun)

    @functools.wraps(jitted._f)
    def explained(*args: Any, **kwargs: Any) -> Explanation:
        with _planned_for(hardware):
            stage = jitted.lower(*args, **kwargs)
        return explain_stage(stage, hardware, topology=topology, slices=slices, trials=trials,
                             suggest_seconds=suggest_seconds)

    return explained


def explain_stage(stage: Lowered | Compiled, hardware: str | Hardware | None = None, *,
                  topology: Sequence[int] | Topology | None = None, slices: int | None = None,
                  trials: int | None = None, suggest_seconds: float = SECONDS) -> Explanation:
    """The explanation of a lowered or compiled function, on any hardware; see `explain`."""
    subject = TracedSubject(stage._traced, stage._executable)
    return Explanation(subject, _topology(subject.partitioned, hardware, topology, slices),
                       stage.fun_name, trials, suggest_seconds)


def explain_program(program: Program, hardware: str | Hardware | None = None, *,
                    in_shardings: Sequence[Any] = (),
                    topology: Sequence[int] | Topology | None = None, slices: int | None = None,
                    trials: int | None = None, suggest_seconds: float = SECONDS) -> Explanation:
    """The explanation of a program without a function, at any level.

    Suggestions exist for TRACED programs: later ones have their shardings decided.
    """
    subject: Subject
    if program.level is Level.TRACED:
        subject = ProgramSubject(program, in_shardings, hardware)
    else:
        subject = DecidedSubject(program, in_shardings)
    return Explanation(subject, _topology(subject.partitioned, hardware, topology, slices),
                       trials=trials, suggest_seconds=suggest_seconds)


def _planned_for(hardware: str | Hardware | None) -> contextlib.AbstractContextManager[None]:
    """While it is entered, plans are made for this hardware, if it is given."""
    return (contextlib.nullcontext() if hardware is None
            else config.override(shardtrace_hardware=find_hardware(hardware)))


def _topology(plan: Partitioned, hardware: str | Hardware | None,
              shape: Sequence[int] | Topology | None, slices: int | None) -> Topology:
    if isinstance(shape, Topology):
        return shape
    mesh = plan.mesh
    sizes = {str(a): n for a, n in zip(mesh.axis_names, mesh.axis_sizes, strict=True)}
    return Topology.of(hardware or plan.objective.hardware, sizes, shape, slices)
