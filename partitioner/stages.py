"""Stages: consecutive passes, after the last of which the program is verified and dumped."""
from __future__ import annotations

import functools
import itertools
import operator
import string
from collections.abc import Iterator, Sequence
from typing import Any

from ..ir.diagnostics.diagnostic import clipped
from ..ir.diagnostics.errors import ShardtraceError, VerificationError
from ..ir.passes import (
    DONATED,
    NEXT_PASS,
    OBJECTIVE,
    RECOMPUTES,
    SKIPPED_PASSES,
    Pass,
    Requests,
    run_passes,
)
from ..ir.program import Level, Program
from ..ir.settings.context import STATE, config
from ..ir.settings.phases import in_phase
from ..ir.source.location import is_ours
from ..ir.verify import verify
from .dumps import Dump
from .passes import PartitionRequest

NAME, _STAGE = operator.attrgetter("name"), operator.attrgetter("stage")


def staged(program: Program, request: PartitionRequest, passes: Sequence[Pass],
           dump: Dump | None = None) -> Iterator[tuple[str, Program]]:
    """The program after each stage, by name, verified. A stage whose passes are all left out is
    missing.
    """
    left_out = request.left_out
    run = run_pass if dump is None else functools.partial(run_pass, dump=dump)
    verified = config.read("shardtrace_check") and not request.draft
    for stage, group in itertools.groupby(passes, _STAGE):
        first, steps, done = program, tuple(group), []
        try:
            program = run_passes(steps, program, request, skip=left_out, run=run,
                                 changed=functools.partial(_changed, done, request))
        except Exception:
            _blame(done, dump)
            raise
        if not done and left_out.issuperset(map(NAME, steps)):
            continue
        if stage == "optimized":
            program = _before(program, "")
        if verified:
            try:
                in_phase("verify", verify, program, first)
            except VerificationError:
                _blame(done, dump)
                raise
        if dump is not None:
            for letter, step, _, after in done[:-1]:
                dump.write_step(letter, step, after)
            dump.write(stage, program)
        for observer in () if request.draft else STATE.on_stage:
            observer(stage, program)
        yield stage, program


def _changed(done: list[tuple[str, Pass, Program, Program]], request: PartitionRequest, number: int,
             step: Pass, before: Program, after: Program) -> Program:
    """The program after a pass, with the attributes of its input; recorded among the passes done.
    """
    after = carrying(after, before)
    if step.stage == "inlined":
        after = with_attribute(after, Requests.KEY, before.attributes.get(Requests.KEY))
    elif after.level is Level.LOCAL:
        after = _before(after, "" if "optimize" in request.skip else "optimize")
    done.append((string.ascii_lowercase[number], step, before, after))
    return after


def _blame(done: Sequence[tuple[str, Pass, Program, Program]], dump: Dump | None) -> None:
    """Raise VerificationError for the first pass that left an invalid program, if one did."""
    for _, step, before, after in done if config.read("shardtrace_check") else ():
        try:
            verify(after, before)
        except VerificationError as problem:
            where = dump.repro(step, before) if dump else ""
            problem.args = (f"pass `{step.name}` left an invalid program{where}\n{problem}",)
            raise


def run_pass(step: Pass, program: Program, request: PartitionRequest,
             dump: Dump | None = None) -> Program:
    """The result of a pass. One that fails raises VerificationError, which names it."""
    try:
        return in_phase(step.name, step.run, program, request)
    except Exception as problem:
        if (isinstance(problem, ShardtraceError) or hasattr(problem, "diagnostic")
                or _is_users(problem)):
            raise                                # it explains itself
        shown = dump.repro(step, program) if dump and isinstance(problem, AssertionError) else ""
        raise VerificationError(f"pass `{step.name}` failed{shown}: {type(problem).__name__}: "
                                f"{clipped(str(problem))}") from problem


def _is_users(problem: Exception) -> bool:
    """Was it raised by the user's code, such as a rule of custom_partitioning?"""
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return not is_ours(name) and name.partition(".")[0] != "numpy"


def with_attribute(program: Program, key: str, said: Any) -> Program:
    """The program with an attribute; unchanged for None."""
    if said is None or program.attributes.get(key) == said:
        return program
    new = program.replace()
    new.attributes[key], new.memo = said, {**program.memo}      # it computes the same
    return new


def carrying(after: Program, before: Program) -> Program:
    """The program after a pass, with the attributes of its input that later stages need."""
    said = before.attributes
    for key in (DONATED, SKIPPED_PASSES, OBJECTIVE, RECOMPUTES):
        if key in said:
            after = with_attribute(after, key, said[key])
    return after


def _before(local: Program, name: str) -> Program:
    """A LOCAL program with the name of the pass that is still to come ("": none)."""
    if local.attributes.get(NEXT_PASS, "") == name:
        return local
    new = local.replace()
    new.attributes[NEXT_PASS], new.memo = name, {**local.memo}
    if not name:
        del new.attributes[NEXT_PASS]
    return new
