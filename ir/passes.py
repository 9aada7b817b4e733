"""Passes: named steps from program to program, listed in order where a stage of the work is done.

The partitioner's are in partitioner/passes.py, those by which the simulated executor prepares a
per-device program in runtime/rewrites/pipeline.py, those over the calls that it plans, from draft
to draft, in runtime/plans/passes.py. Each has one form, is verified, timed
(`--time-passes`) and dumped under its name, and those that are not needed for right results can be
left out by `SHARDTRACE_SKIP=name,...`: to find the one that is to blame.
"""
from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from .phases import in_phase
from .program import Program
from .support.named_tuple import NamedTuple


class Pass(NamedTuple):
    """A step: `run(program, ...)` gives a program with equal results, which the verifier accepts.

    stage: the stage that it belongs to, which its last pass leaves, in dumps and by name. doc: what
    is so afterwards. ops: where there is none of these in a program the step has nothing to do;
    empty: it always may have. inside: it goes into the programs that equations hold, too. plans:
    the plans that it is for: "xla", those that XLA makes; "own", all others; "": all. (Those that
    may be left out: `SKIPPABLE`, support/environment.py.)
    """
    name: str
    stage: str
    run: Callable[..., Any]
    doc: str = ""
    ops: frozenset[str] = frozenset()
    inside: bool = False
    plans: str = ""


def run_passes(passes: Iterable[Pass], program: Program, *context: Any,
               skip: Container[str] = (),
               changed: Callable[[int, Pass, Program], Any] | None = None) -> Program:
    """The program after these passes, but for those to skip. context: further arguments of theirs.

    changed: is called with the number of each pass that changed the program, the pass and the
    result.
    """
    ops, holds = program.op_names, program.holds_programs
    for i, step in enumerate(passes):
        if step.name in skip or (
                step.ops and not (holds and step.inside) and step.ops.isdisjoint(ops)):
            continue                            # idle: written out, since most are
        after = in_phase(step.name, step.run, program, *context)
        if after is not program:
            if changed is not None:
                changed(i, step, after)
            program, ops, holds = after, after.op_names, after.holds_programs
    return program
