"""Passes: named functions from program to program, listed in order by stage; and the facts that
one pass records on a program for later ones.

The partitioner's passes are in partitioner/passes.py, those that prepare a per-device program for
the simulated executor in runtime/rewrites/pipeline.py, and those over the calls of its plan, from
draft to draft, in runtime/plans/passes.py. All have one form: a pass is verified, timed
(`--time-passes`) and dumped under its name, and one that correct results do not need can be left
out by `SHARDTRACE_SKIP=name,...`, to find the one to blame; `optimize` stands for several.
"""
from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

from .diagnostics.diagnostic import fail
from .program import Var
from .settings.phases import in_phase
from .source.location import Location
from .support.named_tuple import NamedTuple
from .support.spelling import none_such
from .types import ArrayType

P = TypeVar("P", bound=Any)


class Pass(NamedTuple):
    """A step: `run(program, ...)` gives a program with equal results, which the verifier accepts.

    stage: the stage that it belongs to; the last pass of a stage leaves the program of that name.
    doc: what holds afterwards. ops: names of ops; the step changes no program without any of them
    (none are named: it may change every program). inside: it goes into the programs that equations
    hold, too. plans: the plans that it is for: "xla", those that XLA makes; "own", all others; "":
    all. decides: its decisions are part of a frozen plan, which is not taken through it again.
    needed: results are wrong without it. optimizes: `SHARDTRACE_SKIP=optimize` leaves it out.
    """
    name: str
    stage: str
    run: Callable[..., Any]
    doc: str = ""
    ops: AbstractSet[str] = frozenset()
    inside: bool = False
    plans: str = ""
    decides: bool = False
    needed: bool = False
    optimizes: bool = False

    @property
    def may_be_skipped(self) -> bool:
        """Without a pass that only XLA's plans go through, a plan would not be XLA's."""
        return not self.needed and self.plans != "xla"


PASSES: dict[str, Pass] = {}
"""The passes of all pipelines that are loaded, by name."""


def pipeline(*steps: Pass) -> tuple[Pass, ...]:
    """These passes, in this order, which `SHARDTRACE_SKIP` knows then."""
    PASSES.update([(step.name, step) for step in steps])
    return steps


def skipped(names: str) -> frozenset[str]:
    """The passes of a list of names with commas. Raises ValueError for one that is needed."""
    found = frozenset(filter(None, map(str.strip, names.split(","))))
    if found:
        known = ("optimize", *[step.name for step in PASSES.values() if step.may_be_skipped])
        for name in sorted(found.difference(known)):
            fail(ValueError, none_such(name, known, "pass that can be left out called"),
                 code="unknown-pass", notes=(f"SHARDTRACE_SKIP, or `config.shardtrace_skip`, is "
                                             f"{names!r}",),
                 help=f"those that can be left out are {', '.join(known)}")
    return found


def run_passes(passes: Iterable[Pass], program: P, *context: Any,
               skip: Container[str] = (), run: Callable[..., P] | None = None,
               changed: Callable[[int, Pass, P, P], P] | None = None) -> P:
    """The program (or draft of a plan) after these passes, except those to skip. context: their
    further arguments.

    run: what runs a pass on a program and the context, if it is to do more. changed: is given the
    number of each pass that changed the program, the pass, what it was and what it is now, and
    gives the program to go on with.
    """
    ops: Any = None         # names of ops of the program; most changes are not looked into
    holds = False
    for i, step in enumerate(passes):
        if step.name in skip:
            continue
        if step.ops:
            if ops is None:
                ops, holds = program.op_names, program.holds_programs
            if step.ops.isdisjoint(program.all_op_names if holds and step.inside else ops):
                continue
        after = (in_phase(step.name, step.run, program, *context) if run is None
                 else run(step, program, *context))
        if after is not program:
            program, ops = after if changed is None else changed(i, step, program, after), None
    return program


# -- what passes pass on, in the attributes of a program, by key ---------------------------

class Requests(NamedTuple):
    """Of a TRACED program: how its arguments are laid out and its results shall be, as types on the
    mesh with all axes Explicit; None for those that are open.
    """
    arguments: tuple[ArrayType | None, ...]
    results: tuple[ArrayType | None, ...]

    KEY = "requests"


class LayoutConstraints(NamedTuple):
    """Of a RESOLVED program: which results of equations stay as their types say, all if `fixed` is
    None; and where the user constrains values.
    """
    fixed: frozenset[Var] | None
    places: dict[Var, Location]

    KEY = "demands"


# Of a LOCAL program: the pass that is still to come.
NEXT_PASS = "next pass"

# Of a program: the passes that are left out, in alphabetical order.
SKIPPED_PASSES = "without"

# Of a program: what it is partitioned for, (objective, hardware, limit of memory).
OBJECTIVE = "judged by"

# Of a RESHARDED program and what is made of it: whether the planner lets devices compute the same.
RECOMPUTES = "repeats"

# Of a program: for each parameter whether results may take its memory.
DONATED = "donated"
