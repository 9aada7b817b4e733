"""`reduce`: the smallest program that still shows a property."""
from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ...driver.analysis.explain import explain_program
from ...driver.analysis.reduce import Case, Reduced, count_equations, reduce_program
from ...driver.execution.programs import (
    asked_arguments,
    check_memory,
    further,
    run_program,
)
from ...ir.diagnostics.errors import ShardtraceError
from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.collective_kinds import KINDS
from ...ir.program import Level, Program
from ...ir.support.spelling import none_such
from ...ir.text.names import name_variables
from ...ir.text.print import WIDTH, print_program
from ...ir.verify import verify
from ...partitioner.collectives import collectives
from ...report.warnings.warnings import KINDS as WARNINGS
from ...report.words import spec_text
from ..arguments import amount, positive
from ..hints import in_option, quoted
from ..output import Output
from ..problems import FINDING, Problem
from ..results import difference
from ..select import one
from ..targets import Found, FoundFunction, FoundProgram
from .run import random_value, rounded_alike

_FAILS = (ShardtraceError, ValueError, TypeError, KeyError, AssertionError, RuntimeError,
          IndexError, ArithmeticError, MemoryError)


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of `reduce`."""
    kinds = sub.add_argument_group("what it must still show (one of these)")
    choice = kinds.add_mutually_exclusive_group(required=True)
    choice.add_argument("--collective", metavar="KIND[:AXIS]",
                        help="a collective: all-gather, all-reduce:model, ...")
    choice.add_argument("--error", metavar="TEXT",
                        help="an error whose message has this text, in any stage or in a run")
    choice.add_argument("--differs", action="store_true",
                        help="results of the two executors that differ")
    choice.add_argument("--warning", metavar="KIND", help="a warning: padding, idle-axis, ...")
    choice.add_argument("--command", metavar="COMMAND",
                        help="a shell command that ends with status 0; {} is the program's file")
    sub.add_argument("-o", "--output", metavar="FILE.st", help="write the program to a file")
    sub.add_argument("--most", type=positive, default=2000, metavar="N",
                     help="look at no more than N programs (default 2000)")
    sub.add_argument("--tolerance", type=amount, default=1e-3, metavar="X",
                     help="relative difference that --differs allows (default 1e-3)")


def reduce(options: argparse.Namespace) -> int:
    """Print the smallest program found, and how many equations were removed."""
    found = one(options.target, options)
    program, specs = _given(found)
    shows, what = _property(options, found.stages()["traced"].mesh if isinstance(
        found, FoundFunction) else program.mesh)
    try:
        with found.printing():
            made = reduce_program(program, specs, shows, options.most)
    except ValueError as problem:
        if "in the first place" not in str(problem):
            raise
        Output(options).text(f"{found.label} does not show {what}")
        return FINDING
    text, out = as_text(made, what), Output(options)
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
    if out.as_json:
        out.json({"shows": what, "equations_before": count_equations(program),
                  "equations": count_equations(made.after.program),
                  "equations_removed": made.removed, "tried": made.tried,
                  "in": _in_options(made.after), "text": text})
    else:
        out.program(as_text(made, what, out.width))
    return 0


def _given(found: Found) -> tuple[Program, list]:
    """The program to be reduced, and the specs of its arguments."""
    if isinstance(found, FoundProgram):
        program = found.program
        specs = asked_arguments(program, found.specs) if program.level is Level.TRACED else []
        return program.replace(attributes={}), specs
    stages = found.stages()
    if isinstance(found, FoundFunction):
        traced = stages["traced"].replace(attributes={})
        return traced, list(found.lowered()._executable.arg_specs)
    return next(iter(stages.values())), []


def as_text(made: Reduced, what: str, width: int = WIDTH) -> str:
    """The program as a file: what it shows, how to look at it, and what was removed, on top."""
    before, after = made.before.program, made.after.program
    lines = [f"# shows {what}",
             f"# {made.removed} of {count_equations(before)} equations removed, "
             f"{len(before.invars)} parameters -> {len(after.invars)}, "
             f"{len(before.outvars)} results -> {len(after.outvars)}"]
    lines += _with(made.after)
    return "\n".join(lines) + "\n" + print_program(after, width=width)


def _with(case: Case) -> list[str]:
    """The options that go with a program, as a comment."""
    given = [f"--in {quoted(text)}" for text in _in_options(case)]
    return [f"# with {' '.join(given)}"] if given else []


def _in_options(case: Case) -> list[str]:
    if case.program.level is not Level.TRACED:
        return []
    printed = name_variables(case.program)        # as they stand in the text
    names = [printed[v] for v in case.program.invars]
    return [f"{name}={spec_text(spec)}"
            for i, (name, spec) in enumerate(zip(names, case.specs, strict=True))
            if spec is not None and case.program.mesh.axis_names and in_option(names, i, spec)]


# -- properties ------------------------------------------------------------------------------------

def _property(options: argparse.Namespace, mesh: AbstractMesh
              ) -> tuple[Callable[[Case], bool], str]:
    """What a case must show, and its description. mesh: of the program."""
    if options.collective:
        kind, _, axis = options.collective.partition(":")
        if kind not in KINDS:
            raise Problem(f"--collective: "
                          f"{none_such(kind, sorted(KINDS), 'kind of collective')}")
        if axis and axis not in mesh.axis_names:
            raise Problem(f"--collective: {none_such(axis, mesh.axis_names, 'mesh axis')}")
        return (lambda case: _has_collective(case, kind, axis),
                f"{kind}{f' over {axis}' if axis else ''}")
    if options.error:
        return lambda case: options.error in _error_of(case), f"the error {options.error!r}"
    if options.differs:
        return lambda case: _differs(case, options.tolerance), "executors that differ"
    if options.warning:
        if options.warning not in WARNINGS:
            raise Problem(f"--warning: {none_such(options.warning, WARNINGS, 'kind of warning')}")
        return lambda case: _warned(case, options.warning), f"the warning {options.warning!r}"
    if "{}" not in options.command:
        raise Problem(f"--command {options.command!r} has no {{}} where the program's file goes")
    return (lambda case: _command(case, options.command),
            f"status 0 of `{options.command}`")


def _local(case: Case) -> Program:
    verify(case.program)
    traced = case.program.level is Level.TRACED
    return list(further(case.program, case.specs if traced else ()).values())[-1]


def _has_collective(case: Case, kind: str, axis: str) -> bool:
    try:
        found = collectives(_local(case))
    except _FAILS:
        return False
    return any(c.kind == kind and (not axis or axis in {str(a).partition(":")[0]
                                                        for a in c.mesh_axes}) for c in found)


def _error_of(case: Case) -> str:
    """The error that a case ends in, "" if none."""
    try:
        local = _local(case)
        run_program(local, _values(local))
    except _FAILS as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _differs(case: Case, tolerance: float) -> bool:
    """Do the two executors disagree on a case by more than the tolerance?"""
    try:
        local = _local(case)
        values = _values(local)
        with rounded_alike():
            pairs = zip(run_program(local, values), run_program(local, values, "per_device"),
                        strict=True)
    except _FAILS:
        return False
    return any(difference(a, b) > tolerance for a, b in pairs)


def _warned(case: Case, kind: str) -> bool:
    try:
        traced = case.program.level is Level.TRACED
        found = explain_program(case.program, in_shardings=case.specs if traced else ())
        return any(w.kind == kind for w in found.warnings)
    except _FAILS:
        return False


def _command(case: Case, command: str) -> bool:
    """Does the user's command succeed on a case, as a file in place of `{}`?"""
    try:
        verify(case.program)
        text = print_program(case.program)
    except _FAILS:
        return False
    heading = "".join(f"{line}\n" for line in _with(case))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.st"
        path.write_text(heading + text, encoding="utf-8")
        done = subprocess.run(command.replace("{}", str(path)), shell=True, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0


def _values(local: Program) -> list[np.ndarray]:
    check_memory(local)
    rng = np.random.default_rng(0)
    return [random_value(rng, t) for t in local.global_in or local.in_avals]
