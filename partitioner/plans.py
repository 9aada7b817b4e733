"""Whole plans: where a property can only be judged on the whole program, several are compared.

The search for strategies (choice/) prices equations one by one. Peak memory and repeated
computation are properties of a whole per-device program. So in these cases several plans are made,
each complete, and one is taken:

    memory limit          the first plan that fits, from a series in which memory weighs more and
                          more against time; MemoryLimitError reports the smallest of them
    objective "memory"    the smallest plan of that series
    repeated computation  also plans without it, one of them with more weight on memory
    large exchanges       if a device receives much, if blocks go to other dimensions or to
                          neighbours, or if a sum waits alone that used to be much larger: also
                          XLA's plan, one with more weight on memory, and one that is searched more
                          widely; if the plan needs much more memory than XLA's, another of these

The plan with the shorter step wins; its memory may be larger by as large a factor as its step is
shorter, plus a tenth.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from ..ir.diagnostics.diagnostic import fail
from ..ir.diagnostics.errors import MemoryLimitError
from ..ir.fingerprint import programs_equal
from ..ir.ops.communication.collective_kinds import each_collective
from ..ir.passes import DONATED, OBJECTIVE, RECOMPUTES, Pass
from ..ir.program import Program
from ..ir.support.lazy import lazy_import
from ..ir.support.named_tuple import NamedTuple
from .choice.lookahead import BUDGETS
from .cost.prices import Objective
from .cost.topology import Topology
from .dumps import Dump
from .optimization.hoist import exchanges
from .passes import PartitionRequest
from .stages import staged, with_attribute

if TYPE_CHECKING:
    from .cost.memory import Memory

_memory = lazy_import(".cost.memory", __package__)
_schedule = lazy_import(".cost.schedule", __package__)

FIRST = "insert-reshards"       # the pass that prices are for
WEIGHTS = (16, 256)             # weights of the bytes of blocks, beside time
MAX_PEAK_RATIO = 1.1            # how much more a plan may hold at the same step time
MIN_GAIN = 1.03                 # ratio of step times from which blocks may be split in another way
MIN_BYTES_FOR_XLA_PLAN = 1_000_000      # bytes received from which XLA's plan is worth making
MOST_FOR_WIDE_SEARCH = 200      # equations
MUCH_LARGER = 16        # ratio of two sums over the same axes that a plan has come to keep apart
_USUAL = frozenset(("all-reduce", "all-gather", "reduce-scatter"))
LARGEST = 3                     # values named in a MemoryLimitError


class _Plan(NamedTuple):
    """The stages of a plan, and the last of them. donated: of the program's arguments."""
    stages: dict[str, Program]
    local: Program
    objective: Objective
    donated: Sequence[bool]

    @property
    def memory(self) -> Memory:
        """The peak memory of a device."""
        return _memory.memory(self.local, self.donated)

    @property
    def peak(self) -> int:
        return self.memory.peak_bytes

    def longer_than(self, other: _Plan, most: float = 0.0) -> float:
        """How many times as long as another plan's a step takes on the hardware: the geometric mean
        of the ratios with and without overlap of exchanges. The former is not computed if the
        latter, which is the result then, is at most `most`.
        """
        if self.local is other.local:
            return 1.0
        topology = Topology.of(self.objective.hardware, self.local.mesh.shape)
        own, others = (sum(_schedule.totals(p.local, topology)) for p in (self, other))
        one_by_one = own / max(others, 1e-18)
        if one_by_one <= most:
            return one_by_one
        own, others = (step_of(p.local, self.objective) for p in (self, other))
        return math.sqrt(own / max(others, 1e-18) * one_by_one)


def planned(program: Program, request: PartitionRequest, passes: Sequence[Pass],
            dump: Dump | None = None) -> Iterator[tuple[str, Program]]:
    """The stages of the plan that is taken, by name, verified.

    Raises MemoryLimitError if none is found within the limit.
    """
    names = [step.name for step in passes]
    at = names.index(FIRST) if FIRST in names else 0
    given = program
    for stage, program in staged(program, request, passes[:at], dump):      # noqa: B020
        yield stage, program
    first = dict(staged(program, request, passes[at:], dump))
    if FIRST in names:
        first = _best_plan(given, program, request, passes, at, first, dump)
    yield from first.items()


def _best_plan(given: Program, program: Program, request: PartitionRequest, passes: Sequence[Pass],
           at: int, first: dict[str, Program], dump: Dump | None) -> dict[str, Program]:
    """The stages of the plan that is taken: those of the first one, or of another.

    given: before all passes. program: before pass `at`, from which on plans differ.
    """
    objective = request.objective
    *_, local = first.values()
    repeats, large, grows = _plans_to_make(local, objective)
    if request.keeps or not request.compared or (
            not math.isinf(request.compared) and step_of(local, objective) > request.compared):
        repeats = large = False
    least = bool(objective.memory_limit) or objective.name == "memory"
    if not (repeats or large or least):
        return first

    def made_by(other: Objective, dump: Dump | None = None, draft: bool = False
                ) -> Iterator[tuple[str, Program]]:
        source, steps = program, passes[at:]    # its text names the objective for later stages
        if other.name == "xla":
            source, steps = given, passes       # which it prepares in its own way
        if other != objective:
            source = with_attribute(source, OBJECTIVE, other.said)
        return staged(source, request._replace(objective=other, draft=draft), steps, dump)

    @functools.cache
    def plan(other: Objective) -> _Plan:
        stages = first
        if other != objective:
            stages = {}
            for stage, made in made_by(other, draft=True):
                if stage == "resharded" and not least and programs_equal(made, first[stage]):
                    stages = first              # except for joined exchanges
                    break
                stages[stage] = made
        *_, made = stages.values()
        if made.global_out != local.global_out:     # no plan decides how an open result is split
            stages, made = first, local
        return _Plan(stages, made, other, program.memo.get(DONATED, ()))

    taken = usual = plan(objective)
    if repeats:
        for weight in (objective.weight, WEIGHTS[0]):
            taken = _shorter_or_lighter(taken, plan(objective._replace(
                weight=weight, no_repeats=True)))
    if large:
        xla = plan(_as_xla(objective))
        if xla.local is not taken.local:
            taken = _shorter_or_lighter(taken, xla, grows)
    if large and not repeats:       # with more weight on blocks, computation is seldom repeated
        for weight in WEIGHTS:
            weighed = plan(objective._replace(weight=weight, no_repeats=True))
            if weighed.local is usual.local:
                break
            shorter = taken.longer_than(weighed, MIN_GAIN)
            if shorter > MIN_GAIN and weighed.peak <= MAX_PEAK_RATIO * shorter * taken.peak:
                taken = weighed
    if large and _is_searched_narrowly(program):
        taken = _shorter_or_lighter(taken, plan(objective._replace(wide=True)), grows)
    if taken.longer_than(usual, 1.0) > 1:        # it needs too much memory: try what lies between
        for weight in WEIGHTS:
            taken = _shorter_or_lighter(plan(objective._replace(weight=weight, no_repeats=True)),
                                        taken)
    found, limit = [taken], objective.memory_limit
    for other in _lighter(objective):
        if objective.name == "memory" or 0 < limit < found[-1].peak:
            found.append(plan(other))
    if len(found) > 1:
        taken = min(found, key=lambda p: p.peak)
    if 0 < limit < taken.peak:
        _refuse(taken, limit)
    if taken.stages is first:
        return first
    if dump is not None and dump.folder is not None:
        dump.rewind(len(taken.stages))
    return dict(made_by(taken.objective, dump))


def _plans_to_make(local: Program, objective: Objective) -> tuple[bool, bool, bool]:
    """(make a plan without repeated computation, make XLA's plan, may its blocks be larger than
    XLA's).
    """
    if objective.name != "time":
        return False, False, False
    repeats = local.memo.get(RECOMPUTES, False)
    if not (local.holds_programs or any(map(exchanges, local.ops))):
        return repeats, False, False
    total = moved = 0
    sums: dict[tuple[str, ...], int] = {}
    joins = False
    for use in each_collective(local):
        if use.kind not in _USUAL:
            return repeats, True, True
        received = use.received_bytes
        total += received * use.count
        if use.kind != "all-reduce":
            moved = max(moved, received)
            continue
        other = sums.setdefault(use.mesh_axes, received)
        joins = joins or max(other, received) > MUCH_LARGER * min(other, received)
    grows = moved > 0 and moved >= sum(
        [t.local_nbytes for t in (*local.in_avals, *local.out_avals)])
    return repeats, grows or joins or total >= MIN_BYTES_FOR_XLA_PLAN, grows


def _is_searched_narrowly(program: Program) -> bool:
    """Is it, or one that it holds, too long to be searched widely at once, but not for a trial?"""
    return BUDGETS[0][0] < len(program.eqns) <= MOST_FOR_WIDE_SEARCH or any(
        [_is_searched_narrowly(body) for _, _, body in program.subprograms()])


def step_of(local: Program, objective: Objective) -> float:
    """Seconds of a step of a per-device program on the hardware of the objective."""
    return _schedule.times(local, Topology.of(objective.hardware, local.mesh.shape)).step


def plans_made(local: Program, objective: Objective) -> int:
    """How many plans were made for a program, of which this one was taken."""
    repeats, large, _ = _plans_to_make(local, objective)
    return 1 + 2 * repeats + large * ((1 if repeats else 2) + _is_searched_narrowly(local))


def _shorter_or_lighter(own: _Plan, other: _Plan, grows: bool = True) -> _Plan:
    """Of two plans the one with the shorter step; it may hold more memory, in proportion."""
    if own.local is other.local:
        return own
    most = min(1.0, MAX_PEAK_RATIO * other.peak / max(own.peak, 1)) if grows else 1.0
    return own if own.longer_than(other, most) <= most else other


def _lighter(objective: Objective) -> Iterator[Objective]:
    """Objectives whose plans need less and less memory, in most cases; XLA's plan is one of them.
    """
    if objective.name == "xla":
        return
    for weight in WEIGHTS:
        yield objective._replace(name="time", weight=weight, no_repeats=True)
    yield objective._replace(name="memory", no_repeats=True)
    yield _as_xla(objective)


def _as_xla(objective: Objective) -> Objective:
    """The objective of XLA's plan, to be judged by another one."""
    return objective._replace(name="xla", tried_for=objective.name)


def _refuse(least: _Plan, limit: int) -> NoReturn:
    """Raise MemoryLimitError: the plan with the least memory needs more than the limit."""
    found = least.memory
    largest = [f"{h.name}: {h.type}, {h.nbytes:,} bytes" for h in found.held[:LARGEST]]
    fail(MemoryLimitError,
         f"RESOURCE_EXHAUSTED: no plan was found for `{least.local.name}` within {limit:,} bytes "
         f"of memory on each device; the least that was found is {least.peak:,}.",
         location=found.location, label="the peak is here",
         notes=(f"arguments are {found.argument_bytes:,} bytes of it; the largest values there: "
                + "; ".join(largest),),
         help="split these over more mesh axes, donate arguments that are not needed later "
                   "(donate_argnums), or compute values again instead of keeping them "
                   "(shardtrace.checkpoint)")
