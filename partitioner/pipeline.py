"""The pipeline: from a traced program to the program that every device runs.

Each pass is a function from program to program with a name; those of one stage follow each other.
After each stage the program is verified at its level and kept, so that it can be read;
`SHARDTRACE_DUMP=dir` writes them as numbered text files (`layer.04-local.st`), each beginning with
a line that says where it comes from, and where several passes of a stage changed the program what
each of them left (`passes/layer.04b-hoist.st`, on the way from 04 to 05). A pass that leaves an
invalid program is reported by name, with its input in `repro.st` under SHARDTRACE_DUMP.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.diagnostics.errors import VerificationError
from ..ir.meshes.mesh import AbstractMesh
from ..ir.ops.communication.retiling import merged_axes
from ..ir.passes import OBJECTIVE, SKIPPED_PASSES, Requests, skipped
from ..ir.program import Program
from ..ir.settings.context import config
from ..ir.spec import UNCONSTRAINED, PartitionSpec, spec_from_entries
from ..ir.support.caches import cached
from ..ir.support.collector import collector_paused
from ..ir.support.immutable import immutable
from ..ir.support.lazy import lazy_import
from ..ir.support.named_tuple import NamedTuple
from ..ir.support.progress import counted
from ..ir.types import ArrayType
from .cost.hardware import Hardware
from .cost.prices import Objective
from .dumps import Dump
from .frozen_plan import keeps_plan
from .passes import PIPELINE, PartitionRequest
from .plans import planned
from .propagation.resolved_types import frozen_mesh, typed
from .stages import with_attribute

_unit_axes = lazy_import(".preparation.unit_axes", __package__)


class Options(NamedTuple):
    """optimize: run the passes that are not needed for a correct program.
    dump: write the stages where the configuration names a directory for them, and the input of a
      pass that failed.
    objective, hardware, memory_limit: what plans are judged by (`Objective`); by default what the
      program's text says, else the configuration (`shardtrace_objective` and so on).
    compared: the seconds of a step up to which several plans are made where one alone may not be
      the best (plans.py); 0 for one alone.
    draft: as of `PartitionRequest`.
    """
    optimize: bool = True
    dump: bool = True
    objective: str | None = None
    hardware: str | Hardware | None = None
    memory_limit: int | None = None
    compared: float = math.inf
    draft: bool = False

    def judged(self, program: Program) -> Objective:
        """The objective for a program. Raises ValueError for an unknown one, VerificationError if
        the program's text names it.
        """
        stated = program.attributes.get(OBJECTIVE, ("", "", 0))
        limit = self.memory_limit
        try:
            return Objective.of(
                self.objective or stated[0] or config.read("shardtrace_objective"),
                self.hardware or stated[1] or config.read("shardtrace_hardware"),
                stated[2] or config.read("shardtrace_memory_limit") if limit is None else limit)
        except ValueError as problem:
            if any(stated):
                raise VerificationError(str(problem)) from None
            raise


DEFAULT_OPTIONS = Options()
STAGES = tuple(dict.fromkeys([step.stage for step in PIPELINE]))
_OURS = frozenset(("optimize", *[step.name for step in PIPELINE if step.may_be_skipped]))


@immutable
class Partitioned:
    """A partitioned program and how it came about.

    stages: programs by name, in order: "traced", "inlined", "resolved", "resharded", "local",
      "optimized". in_specs, out_specs: of the whole arguments and results, one entry a dimension,
      over `mesh` (all axes Explicit). objective: what the plan was judged by.
    """
    mesh: AbstractMesh
    stages: dict[str, Program]
    in_specs: tuple[PartitionSpec, ...]
    out_specs: tuple[PartitionSpec, ...]
    objective: Objective

    @property
    def taken(self) -> Objective:
        """What the program was prepared for: `objective`, or another one that was tried for it and
        makes the plan that is taken, if it prepares programs in its own way, such as XLA's. Of
        plans that differ later on, the text of the local program says by what they are made.
        """
        stated = self.stages["inlined"].attributes.get(OBJECTIVE)
        return Objective.of(stated[0], self.objective.hardware, self.objective.memory_limit) if (
            stated) else self.objective

    @property
    def traced(self) -> Program:
        return self.stages["traced"]

    @property
    def resolved(self) -> Program:
        """Every sharding decided, still global."""
        return self.stages["resolved"]

    @property
    def resharded(self) -> Program:
        """Still global, with every change of layout written down."""
        return self.stages["resharded"]

    @property
    def local(self) -> Program:
        """The per-device program that is to be run: the last stage."""
        return self.stages[next(reversed(self.stages))]


def partition(program: Program, *, mesh: AbstractMesh,
              in_shardings: Sequence[PartitionSpec | None] | None = None,
              out_shardings: Sequence[PartitionSpec | None] | None = None,
              options: Options = DEFAULT_OPTIONS) -> Partitioned:
    """Partition a TRACED program for the devices of `mesh`.

    in_shardings: per parameter the spec that its argument has (fixed), or None where the argument
      is not placed yet: over Auto axes it is then placed as propagation finds best.
    out_shardings: per result the spec that is asked for, or None for what its type says over
      Explicit axes and propagation gives over Auto axes.
    Raises IndivisibleError where a given spec does not divide, MemoryLimitError where no plan is
    found that needs as little as is asked for, and VerificationError naming the pass if one leaves
    a program that breaks the promises of its level.
    """
    known: Requests | None = program.attributes.get(Requests.KEY)
    if known is not None:
        in_shardings = in_shardings or _spec_of(known.arguments)
        out_shardings = out_shardings or _spec_of(known.results)
    skip = left_out(program) | skipped(config.read("shardtrace_skip"))
    if not options.optimize:
        skip |= {"optimize"}
    objective = options.judged(program)
    request = PartitionRequest(
        mesh, _specs(in_shardings, len(program.invars), "in_shardings", mesh),
        _specs(out_shardings, len(program.outvars), "out_shardings", mesh), objective,
        skip & _OURS, keeps_plan(program), options.compared, options.draft)
    requests = _requests(program, request)
    if not program.mesh.axis_names and mesh.axis_names:
        program = program.replace(mesh=mesh)     # its text says on which mesh it is partitioned
    program = with_attribute(program, Requests.KEY, requests)
    if request.skip:
        program = with_attribute(program, SKIPPED_PASSES, tuple(sorted(request.skip)))
    stated = objective.as_attribute
    if stated:
        program = with_attribute(program, OBJECTIVE, stated)
    stages = {"traced": program}
    dump = (Dump.of(config.read("shardtrace_dump"), program, request) if options.dump
            else Dump(None, keeps=False))
    with collector_paused():
        dump.write("traced", program)
        for stage, after in counted(planned(program, request, PIPELINE, dump),
                                    f"partitioning {program.name}", len(STAGES)):
            stages[stage] = program = after
    resolved = stages["resolved"]
    local = stages["local"]
    dump.remember(program)
    return Partitioned(resolved.mesh, stages, _whole(local.global_in), _whole(local.global_out),
                       objective)


def left_out(program: Program) -> frozenset[str]:
    """The passes that the program's text leaves out. Raises VerificationError for one that is
    needed.
    """
    without = program.attributes.get(SKIPPED_PASSES, ())
    for name in {*without} - _OURS:
        raise VerificationError(f"pass {name!r} cannot be left out; those that can are "
                                f"{', '.join(sorted(_OURS))}")
    return frozenset(without)


def _requests(program: Program, request: PartitionRequest) -> Requests | None:
    """The constraints that the specs of arguments and results add to the types of the program."""
    try:
        given = _as_types(program.in_avals, request.in_shardings, request.mesh)
        asked = _as_types(program.out_avals, request.out_shardings, request.mesh)
    except ValueError:
        return None                      # an invalid type: the passes say what is wrong
    stated = {*given, *asked} - {None} or (request.mesh.auto_axes and program.invars)
    return Requests(given, asked) if stated else None


def _as_types(avals: Sequence[ArrayType], specs: Sequence[PartitionSpec | None], mesh: AbstractMesh
              ) -> tuple[ArrayType | None, ...]:
    return tuple([None if spec is None else _as_type(t, spec, mesh)
                  for t, spec in zip(avals, specs, strict=True)])


@cached(4096, "types with a spec on the frozen mesh")
def _as_type(t: ArrayType, spec: PartitionSpec, mesh: AbstractMesh) -> ArrayType | None:
    if t.has_explicit_mesh() and spec == t.spec:
        return None
    return typed(t, frozen_mesh(mesh), spec.padded(t.ndim).entries, spec.unreduced)


def _spec_of(types: Sequence[ArrayType | None]) -> tuple[PartitionSpec | None, ...]:
    return tuple([None if t is None else t.spec for t in types])


def _whole(types: Sequence[ArrayType]) -> tuple[PartitionSpec, ...]:
    """The specs of types, with consecutive parts of an axis merged."""
    return tuple(map(_with_whole_axes, types))


@cached(4096, "specs with sub-axes joined")
def _with_whole_axes(aval: ArrayType) -> PartitionSpec:
    spec = aval.spec
    if all(a in aval.mesh.shape for a in spec.axes()):
        return spec
    (entries,) = merged_axes([spec.entries], aval.mesh.shape)
    return spec_from_entries(entries, spec.unreduced, spec.reduced)


def _specs(given: Sequence[PartitionSpec | None] | None, count: int, what: str, mesh: AbstractMesh
           ) -> tuple[PartitionSpec | None, ...]:
    """The given specs, checked, without axes of one device; None for each if none are given."""
    if given is None:
        return (None,) * count
    if len(given) != count:
        raise ValueError(f"{what} has {len(given)} entries for {count} values")
    for spec in given:
        if spec is not None and UNCONSTRAINED in spec.entries:      # a spec that no type can have
            raise ValueError(f"Unconstrained dims are not allowed when passed to {what}: {spec}")
    if 1 not in mesh.axis_sizes:
        return tuple(given)
    return tuple([None if spec is None else _unit_axes.without_unit_axes(spec, mesh)
                  for spec in given])
