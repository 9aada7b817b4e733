"""Whole plans: where a property can only be judged on the whole program, several are compared.

The search for strategies (choice/) prices equations one by one. Peak memory and repeated
computation are properties of a whole per-device program. So in these cases several plans are made,
each complete, and one is taken:

    memory limit          the first plan that fits, from a series in which memory weighs more and
                          more against time; MemoryLimitError reports the smallest of them
    objective "memory"    the smallest plan of that series
    repeated computation  also plans without it, one of them with more weight on memory
    large exchanges       if a device receives much, or if blocks go to other dimensions or to
                          neighbours: also XLA's plan, one with more weight on memory, and one that
                          is searched more widely and repeats less; if the plan needs much more
                          memory than XLA's, another of these
    exchanges in loops    if starting them takes much of the step: also a plan that splits what
                          loops carry along dimensions that iterations keep apart

The plan with the shorter step wins. What repeats computation may hold a tenth more than what does
not; otherwise memory may be larger by as large a factor as the step is shorter, plus a tenth, or by
any where the other's step is longer than that of XLA's plan.
"""
from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from ..ir.diagnostics.diagnostic import fail
from ..ir.diagnostics.errors import MemoryLimitError
from ..ir.fingerprint import programs_equal
from ..ir.ops.communication.collective_kinds import Use, each_collective
from ..ir.passes import DONATED, OBJECTIVE, RECOMPUTES, Pass
from ..ir.program import Program
from ..ir.support.lazy import lazy_import
from ..ir.support.named_tuple import NamedTuple
from .choice.lookahead import BUDGETS
from .cost.prices import SECOND, Objective
from .cost.topology import Topology
from .dumps import Dump
from .optimization.hoist import exchanges
from .passes import PartitionRequest
from .reasons import is_written
from .stages import staged, with_attribute

if TYPE_CHECKING:
    from .cost.memory import Memory

_memory = lazy_import(".cost.memory", __package__)
_schedule = lazy_import(".cost.schedule", __package__)

FIRST = "insert-reshards"       # the pass that prices are for
WEIGHTS = (16, 256)             # weights of the bytes of blocks, beside time
MAX_PEAK_RATIO = 1.1            # how much more a plan may hold at the same step time
MUCH_SHORTER = 0.95             # ratio of step times up to which it may hold more than that
MIN_GAIN = 1.03                 # ratio of step times from which blocks may be split in another way
MIN_BYTES_FOR_XLA_PLAN = 1_000_000      # bytes received from which XLA's plan is worth making;
                                        # any where starting kernels, which it has fewer of, counts
MOST_FOR_WIDE_SEARCH = 200      # equations
WAITS = 0.25            # part of a step that starting the exchanges in loops takes, to try more
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

    def much_larger_than(self, other: _Plan) -> bool:
        """Does it hold more memory than another plan may at the same step time?"""
        return self.local is not other.local and self.peak > MAX_PEAK_RATIO * other.peak

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
        own, others = (_schedule.times(p.local, topology).mean for p in (self, other))
        return own / max(others, 1e-18)


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
        first = _best_stages(_Plans(given, program, request, passes, at, first), dump)
    yield from first.items()


class _Plans:
    """The plans of a program, each made when it is asked for. usual: the one made first.

    given: before all passes. program: before pass `at`, from which on plans differ. first: the
    stages of the usual plan.
    """

    def __init__(self, given: Program, program: Program, request: PartitionRequest,
                 passes: Sequence[Pass], at: int, first: dict[str, Program]) -> None:
        self.given, self.program, self.request = given, program, request
        self.passes, self.at, self.first = passes, at, first
        self.objective = objective = request.objective
        self.is_least_wanted = bool(objective.memory_limit) or objective.name == "memory"
        self.usual = self._plan(first, objective)
        self._known: dict[Objective, _Plan] = {}

    def _plan(self, stages: dict[str, Program], objective: Objective) -> _Plan:
        *_, local = stages.values()
        return _Plan(stages, local, objective, self.program.attributes.get(DONATED, ()))

    def stages(self, objective: Objective, dump: Dump | None = None, draft: bool = False
               ) -> Iterator[tuple[str, Program]]:
        """The stages of the plan for an objective, made anew."""
        source, steps, request = self.program, self.passes[self.at:], self.request
        if objective.name == "xla" or objective.carried_rows:
            source, steps = self.given, self.passes         # which it prepares in its own way
        if objective.carried_rows:                          # results as in the usual plan
            request = request._replace(out_shardings=tuple([
                t.sharding.spec for t in self.usual.local.global_out]))
        if objective != self.objective:                     # for later stages its text names it
            source = with_attribute(source, OBJECTIVE, objective.said)
        return staged(source, request._replace(objective=objective, draft=draft), steps, dump)

    def of(self, objective: Objective) -> _Plan:
        """The plan for an objective; the usual plan if both are the same."""
        if objective == self.objective:
            return self.usual
        found = self._known.get(objective)
        if found is None:
            found = self._known[objective] = self._plan(self._drafted(objective), objective)
        return found

    def _drafted(self, objective: Objective) -> dict[str, Program]:
        stages: dict[str, Program] = {}
        for stage, made in self.stages(objective, draft=True):
            if stage == "resharded" and not self.is_least_wanted and programs_equal(
                    made, self.first[stage]):
                return self.first                   # except for joined exchanges
            stages[stage] = made
        *_, local = stages.values()
        # no plan decides how an open result is split
        return stages if local.global_out == self.usual.local.global_out else self.first


def _best_stages(plans: _Plans, dump: Dump | None) -> dict[str, Program]:
    """The stages of the plan that is taken: those of the usual one, or of another."""
    taken = _best_plan(plans)
    if plans.is_least_wanted:
        taken = _with_least_memory(plans, taken)
    if taken.stages is plans.first or plans.request.draft:
        return taken.stages
    if dump is not None and dump.folder is not None:
        dump.rewind(len(taken.stages))
    return dict(plans.stages(taken.objective, dump))


def _best_plan(plans: _Plans) -> _Plan:
    """The plan that is taken where memory has no limit."""
    usual, objective, request = plans.usual, plans.objective, plans.request
    repeats, large, grows, waits = _plans_to_make(plans.first["resharded"], usual.local, objective)
    if request.keeps or not request.compared or not (repeats or large or waits) or (
            not math.isinf(request.compared)
            and step_of(usual.local, objective) > request.compared):
        return usual
    lighter = [objective._replace(weight=weight, no_repeats=True) for weight in WEIGHTS]
    no_larger = functools.partial(_shorter_or_lighter, grows=grows)
    trials: list[tuple[Iterable[_Plan], Judge]] = []        # made as they are judged
    taken, too_large = usual, False
    if repeats:
        without = plans.of(objective._replace(no_repeats=True))
        too_large = usual.much_larger_than(without)
        taken = without if too_large else _shorter_or_lighter(usual, without)
        trials.append((map(plans.of, lighter[:1]), _shorter_or_lighter))
    if large:
        trials.append((map(plans.of, (_as_xla(objective),)), no_larger))
    if large and not repeats:       # with more weight on blocks, computation is seldom repeated
        trials.append((itertools.takewhile(lambda p: p.local is not usual.local,
                                           map(plans.of, lighter)), _much_shorter))
    if waits:
        trials.append((map(plans.of, (objective._replace(carried_rows=True),)), _much_shorter))
    if large and _is_searched_narrowly(plans.program):
        trials.append((map(plans.of, (objective._replace(wide=True),)), no_larger))
    for others, judge in trials:
        taken = functools.reduce(judge, [
            p for p in others if not too_large or p.local is not usual.local], taken)
    if taken.longer_than(usual, 1.0) > 1:        # it needs too much memory: try what lies between
        for other in map(plans.of, lighter):
            taken = _shorter_or_lighter(other, taken)
        as_xla = plans.of(_as_xla(objective))
        if not too_large and (taken.longer_than(as_xla, 1.0) > 1 >= usual.longer_than(as_xla, 1.0)):
            taken = usual                           # memory is not worth more than XLA saves
        else:
            taken = _shorter_or_lighter(taken, as_xla)
    return taken


def _with_least_memory(plans: _Plans, taken: _Plan) -> _Plan:
    """This plan, or if it needs more memory than is allowed, one with less."""
    found, objective = [taken], plans.objective
    limit = objective.memory_limit
    for other in _lighter(objective):
        if objective.name == "memory" or 0 < limit < found[-1].peak:
            found.append(plans.of(other))
    if len(found) > 1:
        taken = min(found, key=lambda p: p.peak)
    if 0 < limit < taken.peak:
        _refuse(taken, limit)
    return taken


class _ToMake(NamedTuple):
    """Which plans to make. repeats: one without repeated computation. large: XLA's. grows: may its
    blocks be larger than XLA's? waits: one that splits what loops carry.
    """
    repeats: bool
    large: bool = False
    grows: bool = False
    waits: bool = False


def _plans_to_make(resharded: Program, local: Program, objective: Objective) -> _ToMake:
    """resharded, local: of the usual plan."""
    if objective.name != "time":
        return _ToMake(False)
    found = _ToMake(local.attributes.get(RECOMPUTES, False))
    if not (local.holds_programs or any(map(exchanges, local.ops))):
        return found
    uses = list(each_collective(local))
    if all([is_written(use.equation) for use in uses]) and (
            "reshard" not in resharded.all_op_names):
        return found                    # all are written by hand, and so the same in every plan
    found = found._replace(waits=_waits_in_loops(local, uses, objective))
    total = moved = 0
    for use in uses:
        if use.kind not in _USUAL:
            return found._replace(large=True, grows=True)
        received = use.received_bytes
        total += received * use.count
        if use.kind != "all-reduce":
            moved = max(moved, received)
    grows = moved > 0 and moved >= sum(
        [t.local_nbytes for t in (*local.in_avals, *local.out_avals)])
    least = 0 if objective.hardware.kernel else MIN_BYTES_FOR_XLA_PLAN
    return found._replace(large=grows or total >= least, grows=grows)


def _waits_in_loops(local: Program, uses: Sequence[Use], objective: Objective) -> bool:
    """Does starting those of a program's exchanges that are in loops take much of a step?"""
    repeated = [use for use in uses if use.count > 1]
    if not repeated:
        return False
    prices = objective.prices(local.mesh)
    starts = sum([use.count * prices.exchange_of(use.equation).fixed for use in repeated])
    topology = Topology.of(objective.hardware, local.mesh.shape)
    return starts > WAITS * SECOND * sum(_schedule.totals(local, topology))


def _is_searched_narrowly(program: Program) -> bool:
    """Is it, or one that it holds, too long to be searched widely at once, but not for a trial?"""
    return BUDGETS[0][0] < len(program.eqns) <= MOST_FOR_WIDE_SEARCH or any(
        [_is_searched_narrowly(body) for _, _, body in program.subprograms()])


def step_of(local: Program, objective: Objective) -> float:
    """Seconds of a step of a per-device program on the hardware of the objective."""
    return _schedule.times(local, Topology.of(objective.hardware, local.mesh.shape)).step


def plans_made(stages: Mapping[str, Program], objective: Objective) -> int:
    """How many plans were made for a program, of which the one with these stages was taken."""
    *_, local = stages.values()
    repeats, large, _, waits = _plans_to_make(stages["resharded"], local, objective)
    return 1 + 2 * repeats + waits + large * (
        (1 if repeats else 2) + _is_searched_narrowly(local))


Judge = Callable[[_Plan, _Plan], _Plan]
"""The better one of the plan that is taken so far and another."""


def _much_shorter(own: _Plan, other: _Plan) -> _Plan:
    """The other plan where its step is shorter by a margin; it may hold more, in proportion."""
    shorter = own.longer_than(other, MIN_GAIN)
    return other if shorter > MIN_GAIN and (
        other.peak <= MAX_PEAK_RATIO * shorter * own.peak) else own


def _shorter_or_lighter(own: _Plan, other: _Plan, grows: bool = True) -> _Plan:
    """Of two plans the one with the shorter step; it may hold more memory, in proportion."""
    if own.longer_than(other, 1.0) > 1:
        return other                    # whatever they hold, which takes as long to find as a plan
    if not grows or not own.much_larger_than(other):
        return own
    most = min(MUCH_SHORTER, MAX_PEAK_RATIO * other.peak / own.peak)
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
