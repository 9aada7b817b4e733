"""`explain`: why a function communicates, what that costs, and what would avoid it."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.program import Level, Program
from ...partitioner.cost.hardware import Hardware
from ...partitioner.cost.topology import Topology
from ...report.advice.suggestions import Subject
from ...report.explanation import Explanation
from ..jit.jit import jit
from ..jit.jitted import Jitted
from ..jit.stages import Compiled, Lowered
from .applied_changes import DecidedSubject, ProgramSubject, TracedSubject

DEFAULT_HARDWARE = "v5p"


def explain(fun: Callable[..., Any], hardware: str | Hardware = DEFAULT_HARDWARE, *,
            topology: Sequence[int] | Topology | None = None, slices: int | None = None,
            trials: int | None = None) -> Callable[..., Explanation]:
    """A function that explains `fun`, jitted or not, for arguments: arrays or ShapeDtypeStructs.

    hardware: "v4", "v5e", "v5p", "v6e", "7x", "a100", "h100", "h200", "b200", "cpu", or a Hardware.
    topology: the shape of a slice's torus, such as (8, 16, 16), or a `Topology`; by default one in
    which the mesh axes have the most bandwidth. slices: of how many slices or nodes. trials: how
    many candidates are tried for the suggestions for one collective (by default fewer of a large
    program; what was left untried is said).
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
        return explain_stage(jitted.lower(*args, **kwargs), hardware, topology=topology,
                             slices=slices, trials=trials)

    return explained


def explain_stage(stage: Lowered | Compiled, hardware: str | Hardware = DEFAULT_HARDWARE, *,
                  topology: Sequence[int] | Topology | None = None, slices: int | None = None,
                  trials: int | None = None) -> Explanation:
    """The explanation of a lowered or compiled function; see `explain`."""
    subject = TracedSubject(stage._traced, stage._executable)
    return Explanation(subject, _topology(subject.partitioned.mesh, hardware, topology, slices),
                       stage.fun_name, trials)


def explain_program(program: Program, hardware: str | Hardware = DEFAULT_HARDWARE, *,
                    in_shardings: Sequence[Any] = (),
                    topology: Sequence[int] | Topology | None = None, slices: int | None = None,
                    trials: int | None = None) -> Explanation:
    """The explanation of a program by itself, at any level.

    Suggestions exist for TRACED programs: later ones have their shardings decided.
    """
    subject: Subject
    if program.level is Level.TRACED:
        subject = ProgramSubject(program, in_shardings)
    else:
        subject = DecidedSubject(program, in_shardings)
    return Explanation(subject, _topology(subject.partitioned.mesh, hardware, topology, slices),
                       trials=trials)


def _topology(mesh: Any, hardware: str | Hardware, shape: Sequence[int] | Topology | None,
              slices: int | None) -> Topology:
    if isinstance(shape, Topology):
        return shape
    sizes = {str(a): n for a, n in zip(mesh.axis_names, mesh.axis_sizes, strict=True)}
    return Topology.of(hardware, sizes, shape, slices)
