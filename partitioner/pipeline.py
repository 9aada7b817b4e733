"""The pipeline: from a traced program to the program that every device runs.

Each pass is a function from program to program with a name. After each the program is verified at
its level and kept, so that every stage can be read; `SHARDTRACE_DUMP=dir` writes them as numbered
text files, each beginning with a line that says where it comes from. A pass that leaves an invalid
program is reported by name, with its input in `repro.st` under SHARDTRACE_DUMP.
"""
from __future__ import annotations

import collections
import contextlib
import pathlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from ..ir.context import config
from ..ir.diagnostics.diagnostic import clipped
from ..ir.diagnostics.errors import DumpError, ShardtraceError, VerificationError
from ..ir.diagnostics.location import is_ours
from ..ir.mesh import AbstractMesh
from ..ir.ops.communication.retiling import joined_axes
from ..ir.passes import Pass
from ..ir.phases import in_phase
from ..ir.program import DONATED, NEXT_PASS, SAID, WITHOUT, Level, Program, Requests
from ..ir.spec import UNCONSTRAINED, PartitionSpec, spec_from_entries
from ..ir.support.caches import cached
from ..ir.support.collector import collector_paused
from ..ir.support.environment import skipped
from ..ir.support.immutable import immutable
from ..ir.support.lazy import lazy_import
from ..ir.support.named_tuple import NamedTuple
from ..ir.support.progress import counted
from ..ir.types import ArrayType
from ..ir.verify import verify
from .lowering.localize import localize
from .optimization.optimize import optimize
from .preparation.arrange import arrange
from .preparation.inline import inline
from .preparation.uneven import evened
from .propagation.decided import decide, is_decided
from .propagation.resolve import frozen_mesh, propagate, typed
from .resharding.loop_sums import move_sums
from .resharding.reshards import insert_reshards

_collectives = lazy_import(".collectives", __package__)
_text = lazy_import("..ir.text.print", __package__)


class Job(NamedTuple):
    """What is asked of the pipeline besides the program; see `partition`."""
    mesh: AbstractMesh
    in_shardings: tuple[PartitionSpec | None, ...]
    out_shardings: tuple[PartitionSpec | None, ...]
    optimize: bool = True


def reshard(program: Program, optimize: bool = True) -> Program:
    """The RESHARDED program; with `optimize`, its reshards stand where they cost least."""
    program = insert_reshards(program)
    return move_sums(program) if optimize else program


def _before(local: Program, name: str) -> Program:
    """A LOCAL program that says which pass is still to come ("": none)."""
    if local.memo.get(NEXT_PASS, "") == name:
        return local
    memo = {**local.memo, NEXT_PASS: name}
    if not name:
        del memo[NEXT_PASS]
    local = local.replace()
    local.memo = memo
    return local


PIPELINE: tuple[Pass, ...] = (
    Pass("inline", "inlined", lambda p, job: arrange(evened(inline(p))),
         "calls are replaced by what they call"),
    Pass("propagate", "resolved",
         lambda p, job: (decide if is_decided(p, job.mesh) else propagate)(
             p, job.mesh, job.in_shardings, job.out_shardings),
         "open dimensions get the axes that their factors have elsewhere"),
    Pass("insert-reshards", "resharded", lambda p, job: reshard(p, job.optimize),
         "operands are brought to what each equation can run with, where that moves least"),
    Pass("localize", "local", lambda p, job: _before(localize(p), "optimize" * job.optimize),
         "blocks instead of whole values, collectives instead of reshards"),
    Pass("optimize", "optimized", lambda p, job: _before(optimize(p), ""),
         "collectives are merged, folded and dropped"),
)


class Options(NamedTuple):
    """optimize: run the passes that are not needed for a correct program.
    dump: write the stages where the configuration names a directory for them, and the input of a
      pass that failed.
    """
    optimize: bool = True
    dump: bool = True


DEFAULT_OPTIONS = Options()


@immutable
class Partitioned:
    """A partitioned program and how it came about.

    stages: programs by name, in order: "traced", "inlined", "resolved", "resharded", "local",
      "optimized". in_specs, out_specs: of the whole arguments and results, one entry a dimension,
      over `mesh` (all axes Explicit). timings: seconds by pass.
    """
    mesh: AbstractMesh
    stages: dict[str, Program]
    in_specs: tuple[PartitionSpec, ...]
    out_specs: tuple[PartitionSpec, ...]
    timings: Mapping[str, float] = MappingProxyType({})

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
    Raises IndivisibleError where a given spec does not divide, and VerificationError naming the
    pass if one leaves a program that breaks the promises of its level.
    """
    known: Requests | None = program.memo.get(Requests.KEY)
    if known is not None:
        in_shardings = in_shardings or _spec_of(known.arguments)
        out_shardings = out_shardings or _spec_of(known.results)
    job = Job(mesh, _specs(in_shardings, len(program.invars), "in_shardings"),
              _specs(out_shardings, len(program.outvars), "out_shardings"),
              options.optimize and optimizes(program)
              and "optimize" not in skipped(config.read("shardtrace_skip")))
    requests = _requests(program, job)
    if not program.mesh.axis_names and mesh.axis_names:
        said = {k: v for k, v in program.memo.items() if k in SAID}
        program = program.replace(mesh=mesh)     # its text says on which mesh it is partitioned
        program.memo.update(said)
    program = noting(program, Requests.KEY, requests)
    if not job.optimize:
        program = noting(program, WITHOUT, ("optimize",))
    stages = {"traced": program}
    timings: dict[str, float] = {}
    checking = 0.0
    dump = (Dump.of(config.read("shardtrace_dump"), program, job) if options.dump
            else Dump(None, keeps=False))
    check, clock = config.read("shardtrace_check"), time.perf_counter
    with collector_paused():
        dump.write("traced", program)
        for step in counted(PIPELINE, f"partitioning {program.name}"):
            if step.name == "optimize" and not job.optimize:
                continue
            start = clock()
            after = run_pass(step, program, job, dump)
            timings[step.name] = clock() - start
            if step.name == "inline":
                after = noting(after, Requests.KEY, requests)
            after = carrying(after, program)
            dump.write(step.stage, after)
            if check:
                start = clock()
                try:
                    in_phase("verify", verify, after, program)
                except VerificationError as problem:
                    where = dump.repro(step, program)
                    problem.args = (
                        f"pass `{step.name}` left an invalid program{where}\n{problem}",)
                    raise
                checking += clock() - start
            stages[step.stage] = program = after
    if check:
        timings["verify"] = checking
    resolved = stages["resolved"]
    local = stages["local"]
    dump.remember(program)
    return Partitioned(resolved.mesh, stages, _whole(local.global_in), _whole(local.global_out),
                       timings)


def run_pass(step: Pass, program: Program, job: Job, dump: Dump | None = None) -> Program:
    """What a pass makes of a program. One that fails says so: VerificationError, by its name."""
    try:
        return in_phase(step.name, step.run, program, job)
    except Exception as problem:
        if (isinstance(problem, ShardtraceError) or hasattr(problem, "diagnostic")
                or _is_users(problem)):
            raise                                # it says itself what is wrong, and where
        shown = dump.repro(step, program) if dump and isinstance(problem, AssertionError) else ""
        raise VerificationError(f"pass `{step.name}` failed{shown}: {type(problem).__name__}: "
                                f"{clipped(str(problem))}") from problem


def _is_users(problem: Exception) -> bool:
    """Did code of the user's raise it, such as a rule of custom_partitioning?"""
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return not is_ours(name) and name.partition(".")[0] != "numpy"


def noting(program: Program, key: str, said: Any) -> Program:
    """The program with something that its text says and only the memo holds; as it is if None."""
    if said is None or program.memo.get(key) == said:
        return program
    memo = {**program.memo, key: said}
    program = program.replace()
    program.memo = memo
    return program


def carrying(after: Program, before: Program) -> Program:
    """What a pass left, with what its input's text says for all later stages."""
    said = before.memo
    if DONATED in said or WITHOUT in said:
        for key in (DONATED, WITHOUT):
            after = noting(after, key, said.get(key))
    return after


def optimizes(program: Program) -> bool:
    """Is it to be optimized? Raises VerificationError where its text leaves out another pass."""
    without = program.memo.get(WITHOUT, ())
    for name in {*without} - {"optimize"}:
        raise VerificationError(f"pass {name!r} cannot be left out; only `without optimize` can")
    return not without


def _requests(program: Program, job: Job) -> Requests | None:
    """What is asked for besides what the types of the program say."""
    try:
        given = _as_types(program.in_avals, job.in_shardings, job.mesh)
        asked = _as_types(program.out_avals, job.out_shardings, job.mesh)
    except ValueError:
        return None                      # no such type: for the passes to say what is wrong
    said = {*given, *asked} - {None} or (job.mesh.auto_axes and program.invars)
    return Requests(given, asked) if said else None


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
    """The specs of types, with the parts of an axis that follow each other as one."""
    return tuple(map(_with_whole_axes, types))


@cached(4096, "specs with sub-axes joined")
def _with_whole_axes(aval: ArrayType) -> PartitionSpec:
    spec = aval.spec
    if all(a in aval.mesh.shape for a in spec.axes()):
        return spec
    (entries,) = joined_axes([spec.entries], aval.mesh.shape)
    return spec_from_entries(entries, spec.unreduced, spec.reduced)


def _specs(given: Sequence[PartitionSpec | None] | None, count: int, what: str
           ) -> tuple[PartitionSpec | None, ...]:
    if given is None:
        return (None,) * count
    if len(given) != count:
        raise ValueError(f"{what} has {len(given)} entries for {count} values")
    for spec in given:
        if spec is not None and UNCONSTRAINED in spec.entries:      # no type says such a thing
            raise ValueError(f"Unconstrained dims are not allowed when passed to {what}: {spec}")
    return tuple(given)


class Dump:
    """Writes the stages of one program into a directory, numbered; does nothing without one.

    Files are `layer.00-traced.st`, `layer.01-inlined.st`, ...; when another program of that name
    is partitioned in this process, its files are `layer.2.00-traced.st`, ... The same program is
    written once.
    """

    KEY: ClassVar = "dump"          # in the memo of the last stage
    _written: ClassVar[dict[tuple[str, str], set[tuple]]] = collections.defaultdict(set)

    def __init__(self, folder: pathlib.Path | None, name: str = "", keeps: bool = True) -> None:
        self.folder, self.name, self.keeps = folder, name, keeps
        self.count = 0

    @classmethod
    def of(cls, directory: str, program: Program, job: Job) -> Dump:
        if not directory:
            return cls(None)
        folder = pathlib.Path(directory)
        with _into(folder):
            folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"\W+", "", program.name) or "program"
        known, own = cls._written[directory, name], (_text.print_program(program), job.optimize)
        if own in known:
            return cls(None)
        known.add(own)
        nth = len(known)
        return cls(folder, name if nth == 1 else f"{name}.{nth}")

    def write(self, stage: str, program: Program) -> None:
        if self.folder is None:
            return
        path = self.folder / f"{self.name}.{self.count:02d}-{stage}.st"
        with _into(self.folder):
            _text.save_program(program, path, comment=provenance(stage, program))
        self.count += 1

    def remember(self, local: Program) -> None:
        """Let the last stage know where it was dumped, for who goes on with it."""
        if self.folder is not None:
            local.memo[Dump.KEY] = self

    def execution(self, number: int, step: Pass, program: Program) -> None:
        """Write what pass `number` of the executor's left."""
        assert self.folder is not None
        path = self.folder / f"{self.name}.{self.count + number:02d}-{step.stage}.st"
        with _into(self.folder):
            _text.save_program(program, path, comment=f"after {step.name}, "
                               f"{len(program.eqns)} equations; {step.doc}")

    def repro(self, step: Pass, before: Program) -> str:
        """Write the input of a pass that failed, as a file to run it on, into the folder of
        dumps; says where, or how to get it. Of a trial, which may fail, nothing is kept.
        """
        if not self.keeps:
            return ""
        if self.folder is None:
            return "; set SHARDTRACE_DUMP to a folder to get its input there, as repro.st"
        path = self.folder / "repro.st"
        with _into(self.folder):
            _text.save_program(before, path, comment=f"input of pass {step.name}, which left an "
                               "invalid program")
        return f"; its input is in {path}"


@contextlib.contextmanager
def _into(folder: pathlib.Path) -> Iterator[None]:
    """What writes into the folder of dumps; DumpError where the system refuses."""
    try:
        yield
    except OSError as problem:
        raise DumpError(
            f"programs cannot be dumped into '{folder}', which SHARDTRACE_DUMP or the setting "
            f"shardtrace_dump names: {'it is a file' if folder.is_file() else problem.strerror}"
            ) from problem


def provenance(stage: str, program: Program) -> str:
    """`after propagate, 14 equations, 0 collectives`."""
    after = next((step.name for step in PIPELINE if step.stage == stage), "trace")
    count = len(_collectives.collectives(program)) if program.level is Level.LOCAL else 0
    return f"after {after}, {len(program.eqns)} equations, {count} collectives"
