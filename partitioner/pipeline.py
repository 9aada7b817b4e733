"""The pipeline: from a traced program to the program that every device runs.

Each pass is a function from program to program with a name; those of one stage follow each other.
After each stage the program is verified at its level and kept, so that it can be read;
`SHARDTRACE_DUMP=dir` writes them as numbered text files (`layer.04-local.st`), each beginning with
a line that says where it comes from, and where several passes of a stage changed the program what
each of them left (`passes/layer.04b-hoist.st`, on the way from 04 to 05). A pass that leaves an
invalid program is reported by name, with its input in `repro.st` under SHARDTRACE_DUMP.
"""
from __future__ import annotations

import collections
import contextlib
import itertools
import operator
import pathlib
import re
import string
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from ..ir.context import config
from ..ir.diagnostics.diagnostic import clipped
from ..ir.diagnostics.errors import DumpError, ShardtraceError, VerificationError
from ..ir.diagnostics.location import is_ours
from ..ir.mesh import AbstractMesh
from ..ir.ops.communication.retiling import joined_axes
from ..ir.passes import Pass
from ..ir.phases import in_phase
from ..ir.program import (
    DONATED,
    JUDGED,
    NEXT_PASS,
    SAID,
    WITHOUT,
    Level,
    Program,
    Requests,
)
from ..ir.rewriting.unread import drop_dead
from ..ir.spec import UNCONSTRAINED, PartitionSpec, spec_from_entries
from ..ir.support.caches import cached
from ..ir.support.collector import collector_paused
from ..ir.support.environment import OPTIMIZE, SKIPPABLE, skipped
from ..ir.support.immutable import immutable
from ..ir.support.lazy import lazy_import
from ..ir.support.named_tuple import NamedTuple
from ..ir.support.progress import counted
from ..ir.types import ArrayType
from ..ir.verify import verify
from .cost.hardware import DEFAULT_HARDWARE, Hardware, hardware
from .cost.prices import Prices, check_objective, prices_for
from .lowering.localize import localize
from .optimization.combine import COMBINED, combine
from .optimization.hoist import hoist
from .optimization.optimize import FOLD_GATHERS, FORM_SCATTERS, dedupe
from .optimization.shared_rows import share_rows
from .preparation.arrange import arrange
from .preparation.inline import inline
from .preparation.uneven import evened
from .propagation.decided import decide, is_decided
from .propagation.resolve import frozen_mesh, propagate, typed
from .regions import INLINED, REGIONS, inside
from .resharding.loop_sums import move_sums
from .resharding.reshards import insert_reshards

_collectives = lazy_import(".collectives", __package__)
_text = lazy_import("..ir.text.print", __package__)


class Job(NamedTuple):
    """What is asked of the pipeline besides the program; see `partition`. skip: passes that are
    left out, by name; `optimize` stands for several. objective, hardware: what plans are judged by.
    """
    mesh: AbstractMesh
    in_shardings: tuple[PartitionSpec | None, ...]
    out_shardings: tuple[PartitionSpec | None, ...]
    skip: frozenset[str] = frozenset()
    objective: str = "time"
    hardware: str | Hardware = DEFAULT_HARDWARE

    def prices(self, program: Program) -> Prices:
        """What the layouts of a program are chosen by."""
        return prices_for(program.mesh, self.objective, self.hardware)

    @property
    def left_out(self) -> frozenset[str]:
        """All of these passes, by their own names."""
        return self.skip.union(OPTIMIZE) if "optimize" in self.skip else self.skip


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


def _inside_loops(program: Program, job: Job) -> Program:
    """The programs in a program after the passes from this one to the last before `combine`."""
    left_out = job.left_out

    def simplified(body: Program) -> Program:
        for step in SIMPLIFY:
            if step.name not in left_out and not step.idle(body.op_names, body.holds_programs):
                body = in_phase(step.name, step.run, body, job)
        return body
    return inside(program, simplified)


def _combined(program: Program, job: Job) -> Program:
    return combine(inside(program, lambda body: _combined(body, job)),
                   prices_for(program.mesh, "time", job.hardware))


PREPARE: tuple[Pass, ...] = (
    Pass("inline", "inlined", lambda p, job: inline(p),
         "calls are replaced by what they call", frozenset(INLINED), inside=True),
    Pass("even-slices", "inlined", lambda p, job: evened(p),
         "arithmetic on slices that no mesh divides is done on what they are slices of",
         frozenset({"slice"}), inside=True),
    Pass("arrange", "inlined", lambda p, job: arrange(p),
         "concatenations, splits and updates of rows say how far rows are moved"),
)

# One makes room for the next.
SIMPLIFY: tuple[Pass, ...] = (
    Pass("inside-loops", "optimized", _inside_loops,
         "programs of loops and branches have been through the passes that follow",
         frozenset(REGIONS), inside=True),
    Pass("hoist", "optimized", lambda p, job: hoist(p),
         "collectives that a loop repeats on the same values are done once, before it",
         frozenset({"scan", "while"})),
    Pass("dedupe", "optimized", lambda p, job: dedupe(p),
         "equal equations are computed once, and so their collectives done once"),
    Pass("fold-gathers", "optimized", lambda p, job: FOLD_GATHERS(p),
         "the own block of what was gathered along the same axes is the block itself",
         frozenset({"all_slice"})),
    Pass("form-scatters", "optimized", lambda p, job: FORM_SCATTERS(p),
         "an all-reduce of which every device keeps its own block is a reduce-scatter",
         frozenset({"all_slice"})),
    Pass("drop-dead", "optimized", lambda p, job: drop_dead(p),
         "what nothing reads is not computed"),
    Pass("share-rows", "optimized", lambda p, job: share_rows(p),
         "rows of one value that devices lack come in one exchange",
         frozenset({"exchange_rows"})),
)

PIPELINE: tuple[Pass, ...] = (
    *PREPARE,
    Pass("propagate", "resolved",
         lambda p, job: (decide if is_decided(p, job.mesh) else propagate)(
             p, job.mesh, job.in_shardings, job.out_shardings),
         "open dimensions get the axes that their factors have elsewhere"),
    Pass("insert-reshards", "resharded", lambda p, job: insert_reshards(p, job.prices(p)),
         "operands are brought to what each equation can run with, where that moves least"),
    Pass("move-sums", "resharded", lambda p, job: move_sums(p, job.prices(p)),
         "reshards stand where they cost least: later, and outside of loops",
         frozenset({"reshard"}), inside=True),
    Pass("localize", "local", lambda p, job: localize(p),
         "blocks instead of whole values, collectives instead of reshards"),
    *SIMPLIFY,
    # it hides parts from the others, so it comes last, in all programs
    Pass("combine", "optimized", _combined,
         "small exchanges that do not wait for each other are one", COMBINED, inside=True),
)


class Options(NamedTuple):
    """optimize: run the passes that are not needed for a correct program.
    dump: write the stages where the configuration names a directory for them, and the input of a
      pass that failed.
    objective, hardware: what plans are judged by, "time" on a device or "bytes"; by default what
      the program's text says, else the configuration (`shardtrace_objective`,
      `shardtrace_hardware`).
    """
    optimize: bool = True
    dump: bool = True
    objective: str | None = None
    hardware: str | Hardware | None = None

    def judged(self, program: Program) -> tuple[str, Hardware]:
        """What plans for a program are judged by. Raises ValueError for what there is not, and
        VerificationError where the program's text says it.
        """
        said = program.memo.get(JUDGED, ("", ""))
        objective = self.objective or said[0] or config.read("shardtrace_objective")
        device = self.hardware or said[1] or config.read("shardtrace_hardware")
        try:
            check_objective(objective)
            return objective, hardware(device)
        except ValueError as problem:
            if objective in said or device in said:
                raise VerificationError(str(problem)) from None
            raise


DEFAULT_OPTIONS = Options()
DEFAULT = "time", DEFAULT_HARDWARE      # not said in the text of a program
STAGES = tuple(dict.fromkeys([step.stage for step in PIPELINE]))
# what the stage is the work of, in a word
_MADE_BY = {step.stage: step.name for step in reversed(PIPELINE)} | {"optimized": "optimize"}
_OURS = frozenset(("optimize", *[step.name for step in PIPELINE if step.name in SKIPPABLE]))


@immutable
class Partitioned:
    """A partitioned program and how it came about.

    stages: programs by name, in order: "traced", "inlined", "resolved", "resharded", "local",
      "optimized". in_specs, out_specs: of the whole arguments and results, one entry a dimension,
      over `mesh` (all axes Explicit). objective, hardware: what the plan was judged by.
    """
    mesh: AbstractMesh
    stages: dict[str, Program]
    in_specs: tuple[PartitionSpec, ...]
    out_specs: tuple[PartitionSpec, ...]
    objective: str = "time"
    hardware: str | Hardware = DEFAULT_HARDWARE

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
    skip = left_out(program) | skipped(config.read("shardtrace_skip"))
    if not options.optimize:
        skip |= {"optimize"}
    objective, device = options.judged(program)
    job = Job(mesh, _specs(in_shardings, len(program.invars), "in_shardings"),
              _specs(out_shardings, len(program.outvars), "out_shardings"), skip & _OURS,
              objective, device)
    requests = _requests(program, job)
    if not program.mesh.axis_names and mesh.axis_names:
        said = {k: v for k, v in program.memo.items() if k in SAID}
        program = program.replace(mesh=mesh)     # its text says on which mesh it is partitioned
        program.memo.update(said)
    program = noting(program, Requests.KEY, requests)
    if job.skip:
        program = noting(program, WITHOUT, tuple(sorted(job.skip)))
    if (objective, device.key) != DEFAULT:
        program = noting(program, JUDGED, (objective, device.key))
    stages = {"traced": program}
    dump = (Dump.of(config.read("shardtrace_dump"), program, job) if options.dump
            else Dump(None, keeps=False))
    with collector_paused():
        dump.write("traced", program)
        for stage, after in counted(staged(program, job, PIPELINE, dump),
                                    f"partitioning {program.name}", len(STAGES)):
            stages[stage] = program = after
    resolved = stages["resolved"]
    local = stages["local"]
    dump.remember(program)
    return Partitioned(resolved.mesh, stages, _whole(local.global_in), _whole(local.global_out),
                       job.objective, job.hardware)


def staged(program: Program, job: Job, passes: Sequence[Pass], dump: Dump | None = None,
           ) -> Iterator[tuple[str, Program]]:
    """What each stage leaves, by name, verified; one whose passes are all left out is not there."""
    left_out, ops, holds = job.left_out, program.op_names, program.holds_programs
    for stage, steps in itertools.groupby(passes, operator.attrgetter("stage")):
        first, done, ran = program, [], False
        for letter, step in zip(string.ascii_lowercase, steps, strict=False):
            if step.name in left_out:
                continue
            ran = True
            if step.idle(ops, holds):
                continue
            try:
                after = run_pass(step, program, job, dump)
            except Exception:
                _blame(done, dump)
                raise
            if after is not program:
                after = carrying(after, program)
                if stage == "inlined":
                    after = noting(after, Requests.KEY, program.memo.get(Requests.KEY))
                elif after.level is Level.LOCAL:
                    after = _before(after, "" if "optimize" in job.skip else "optimize")
                done.append((letter, step, program, after))
                program, ops, holds = after, after.op_names, after.holds_programs
        if not ran:
            continue
        if stage == "optimized":
            program = _before(program, "")
        if config.read("shardtrace_check"):
            try:
                in_phase("verify", verify, program, first)
            except VerificationError:
                _blame(done, dump)
                raise
        if dump is not None:
            for letter, step, _, after in done[:-1]:
                dump.write_step(letter, step, after)
            dump.write(stage, program)
        yield stage, program


def _blame(done: Sequence[tuple[str, Pass, Program, Program]], dump: Dump | None) -> None:
    """Raise VerificationError for the first pass that left an invalid program, if one did."""
    for _, step, before, after in done if config.read("shardtrace_check") else ():
        try:
            verify(after, before)
        except VerificationError as problem:
            where = dump.repro(step, before) if dump else ""
            problem.args = (f"pass `{step.name}` left an invalid program{where}\n{problem}",)
            raise


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
    if DONATED in said or WITHOUT in said or JUDGED in said:
        for key in (DONATED, WITHOUT, JUDGED):
            after = noting(after, key, said.get(key))
    return after


def left_out(program: Program) -> frozenset[str]:
    """The passes that its text leaves out. Raises VerificationError for one that is needed."""
    without = program.memo.get(WITHOUT, ())
    for name in {*without} - _OURS:
        raise VerificationError(f"pass {name!r} cannot be left out; those that can are "
                                f"{', '.join(sorted(_OURS))}")
    return frozenset(without)


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


PASSES = "passes"


class Dump:
    """Writes the stages of one program into a directory, numbered; does nothing without one.

    Files are `layer.00-traced.st`, `layer.01-inlined.st`, ...; when another program of that name
    is partitioned in this process, its files are `layer.2.00-traced.st`, ... The same program is
    written once. What passes within a stage leave, and the executor's in bodies of loops, lies in
    a folder of its own, PASSES.
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
        known, own = cls._written[directory, name], (_text.print_program(program), job.skip)
        if own in known:
            return cls(None)
        known.add(own)
        nth = len(known)
        return cls(folder, name if nth == 1 else f"{name}.{nth}")

    def write(self, stage: str, program: Program) -> None:
        if self.folder is None:
            return
        self._save(f"{self.name}.{self.count:02d}-{stage}.st", program, provenance(stage, program))
        self.count += 1

    def write_step(self, letter: str, step: Pass, program: Program) -> None:
        """What a pass within a stage left: `04b-hoist` is on the way from 04 to 05."""
        if self.folder is not None:
            self._save(f"{PASSES}/{self.name}.{self.count - 1:02d}{letter}-{step.name}.st", program,
                       f"after {step.name}, {len(program.eqns)} equations; {step.doc}")

    def _save(self, file: str, program: Program, comment: str) -> None:
        assert self.folder is not None
        with _into(self.folder):
            path = self.folder / file
            path.parent.mkdir(exist_ok=True)
            _text.save_program(program, path, comment=comment)

    def remember(self, local: Program) -> None:
        """Let the last stage know where it was dumped, for who goes on with it."""
        if self.folder is not None:
            local.memo[Dump.KEY] = self

    def execution(self, number: int, step: Pass, program: Program, body: str = "") -> None:
        """Write what pass `number` of the executor's left; of the body of a loop, by its name."""
        file = f"{self.name}.{self.count + number:02d}-{step.stage}.st"
        if body:
            file = f"{PASSES}/{file.removesuffix('st')}{body}.st"
        of = f" in the program of `{body}`" if body else ""
        self._save(file, program, f"after {step.name}{of}, {len(program.eqns)} equations; "
                   f"{step.doc}")

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
    after = _MADE_BY.get(stage, "trace")
    count = len(_collectives.collectives(program)) if program.level is Level.LOCAL else 0
    return f"after {after}, {len(program.eqns)} equations, {count} collectives"
