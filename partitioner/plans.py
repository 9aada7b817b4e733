"""Whole plans: where a property can only be judged on the whole program, several are compared.

The search for strategies (choice/) prices equations one by one. Peak memory and repeated
computation are properties of a whole per-device program. So in these cases several plans are made,
each complete, and one is taken:

    memory limit          the first plan that fits, from a series in which memory weighs more and
                          more against time; MemoryLimitError reports the smallest of them
    objective "memory"    the smallest plan of that series
    objective "time"      the best of the usual plan and those of the table in trial_plans.py
"""
from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from ..ir.diagnostics.diagnostic import fail
from ..ir.diagnostics.errors import MemoryLimitError
from ..ir.fingerprint import programs_equal
from ..ir.passes import DONATED, OBJECTIVE, Pass
from ..ir.program import Program
from ..ir.spec import PartitionSpec
from ..ir.types import ArrayType
from .cost.prices import SECOND, Objective
from .dumps import Dump
from .passes import PartitionRequest
from .stages import NAME, staged, with_attribute
from .trial_plans import (
    TRIALS,
    Plan,
    Tried,
    as_xla,
    best_of,
    facts_of,
    limits_of,
    moving,
    no_repeats,
    over_idle_axes,
    step_of,
    with_lighter_blocks,
)

LAYS_OUT = "propagate"
FIRST = "insert-reshards"       # the pass that prices are for
LARGEST = 3                     # values named in a MemoryLimitError


def planned(program: Program, request: PartitionRequest, passes: Sequence[Pass],
            dump: Dump | None = None) -> Iterator[tuple[str, Program]]:
    """The stages of the plan that is taken, by name, verified.

    Raises MemoryLimitError if none is found within the limit.
    """
    names = [*map(NAME, passes)]
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
        self._known: dict[Objective, Plan] = {}
        self._laid_out: dict[str, dict[str, Program]] = {}

    def _plan(self, stages: dict[str, Program], objective: Objective) -> Plan:
        *_, local = stages.values()
        return Plan(stages, local, objective, self.program.attributes.get(DONATED, ()))

    def stages(self, objective: Objective, dump: Dump | None = None, draft: bool = False
               ) -> Iterator[tuple[str, Program]]:
        """The stages of the plan for an objective, made anew."""
        source, steps, request = self.program, self.passes[self.at:], self.request
        lays_out_otherwise = objective.carried_rows or objective.kept_rows
        if objective.idle or lays_out_otherwise or objective.name == "xla":
            source, steps = self.given, self.passes         # which it prepares in its own way
        if objective.idle:
            request = self.closed
        elif lays_out_otherwise:
            request = request._replace(out_shardings=self.closed.out_shardings)
        if objective.idle and draft:
            source, steps = [*self.laid_out(objective.idle).values()][-1], self.passes[self.at:]
        elif objective != self.objective:                   # for later stages its text names it
            source = with_attribute(source, OBJECTIVE, objective.as_attribute)
        return staged(source, request._replace(objective=objective, draft=draft), steps, dump)

    @functools.cached_property
    def closed(self) -> PartitionRequest:
        """The request, with arguments and results as in the usual plan."""
        local, given = self.usual.local, self.request.in_shardings
        placed = _specs(local.global_in)
        return self.request._replace(
            in_shardings=tuple([spec or own for spec, own in zip(given or placed, placed,
                                                                 strict=True)]),
            out_shardings=_specs(local.global_out))

    @functools.cached_property
    def prepared(self) -> dict[str, Program]:
        """The stages before values are laid out by that request, which drafts have in common that
        lay them out in other ways.
        """
        return dict(staged(self.given, self.closed._replace(draft=True),
                           self.passes[:self.laid_out_at]))

    def laid_out(self, idle: str) -> dict[str, Program]:
        """The stages up to where values are laid out, in drafts that split arguments or values
        further. `idle`: as of the objective.
        """
        if idle not in self._laid_out:
            request = self.closed._replace(objective=self.objective._replace(idle=idle), draft=True)
            source, steps = [self.given, *self.prepared.values()][-1], self.passes[:self.at]
            self._laid_out[idle] = {**self.prepared, **dict(
                staged(source, request, steps[self.laid_out_at:]))}
        return self._laid_out[idle]

    @property
    def laid_out_at(self) -> int | None:
        """The number of the pass that lays values out; None if they are laid out already."""
        return next((n for n, step in enumerate(self.passes) if step.name == LAYS_OUT), None)

    def of(self, objective: Objective) -> Plan:
        """The plan for an objective; the usual plan if both are the same."""
        if objective == self.objective:
            return self.usual
        found = self._known.get(objective)
        if found is None:
            found = self._known[objective] = self._plan(self._drafted(objective), objective)
        return found

    def _drafted(self, objective: Objective) -> dict[str, Program]:
        """The stages of a draft by another objective; those of the usual plan, or of another draft,
        if it makes the same choices, and those of the usual plan if it splits an open result
        otherwise.
        """
        stages: dict[str, Program] = {}
        if objective.idle:
            stages |= self.laid_out(objective.idle) if self.laid_out_at is not None else {}
            if not stages or programs_equal([*stages.values()][-1], self.program):
                return self.first
        for stage, made in self.stages(objective, draft=True):
            if stage == "resharded":
                if objective.idle and self._exchanges_too_much(made):
                    return self.first
                found = None if self.is_least_wanted else self._alike(objective, made)
                if found is not None:
                    return found
            stages[stage] = made
        *_, local = stages.values()
        # no plan decides how an open result is split
        return stages if local.global_out == self.usual.local.global_out else self.first

    def _alike(self, objective: Objective, resharded: Program) -> dict[str, Program] | None:
        """The stages of the usual plan or of a draft that makes the same choices, except for joined
        exchanges; None if none is known. Drafts differ later on by the names of objectives.
        """
        if programs_equal(resharded, self.first["resharded"]):
            return self.first
        name = objective.name, objective.tried_for
        return next((plan.stages for o, plan in self._known.items() if (
            name == (o.name, o.tried_for)
            and programs_equal(resharded, plan.stages["resharded"]))), None)

    def _exchanges_too_much(self, resharded: Program) -> bool:
        """Does what a plan moves alone take longer than the exchanges of the usual one and half of
        its computation?
        """
        computation, exchanges = self.usual.one_by_one
        return moving(resharded, self.objective.prices(self.program.mesh)) > SECOND * (
            exchanges + computation / 2)


def _best_stages(plans: _Plans, dump: Dump | None) -> dict[str, Program]:
    """The stages of the plan that is taken: those of the usual one, or of another."""
    taken = _best_plan(plans)
    if plans.is_least_wanted:
        taken = _with_least_memory(plans, taken)
    if taken.stages is plans.first:
        return taken.stages
    if plans.request.draft:             # drafts have stages in common, which name no objective
        said = taken.objective.as_attribute
        return {name: with_attribute(stage, OBJECTIVE, said)
                for name, stage in taken.stages.items()}
    if dump is not None and dump.folder is not None:
        dump.rewind(len(taken.stages))
    return dict(plans.stages(taken.objective, dump))


def _best_plan(plans: _Plans) -> Plan:
    """The plan that is taken where memory has no limit."""
    usual, objective, request = plans.usual, plans.objective, plans.request
    found = facts_of(plans.first["resharded"], usual.local, objective, plans.program)
    if request.keeps or not request.compared or not (
            found.repeats or found.large or found.waits or found.cuts or found.idle) or (
            not math.isinf(request.compared)
            and step_of(usual.local, objective) > request.compared):
        return usual
    thrifty = plans.of(no_repeats(objective)) if found.repeats else usual
    if not usual.may_hold([thrifty]):   # what lies between may do
        found = found._replace(large=True)
    tried: list[Tried] = []
    for trial in TRIALS:
        for variant in trial.variants(objective, found) if trial.when(found) else ():
            other = plans.of(variant)
            if other.local is not usual.local:
                tried.append(Tried(other, trial))
            elif trial.stops:
                break
    limits = limits_of(thrifty, plans.of(as_xla(objective)) if found.large else None)
    taken = best_of(usual, [one for one in tried if not one.trial.idle], limits)
    return over_idle_axes(taken, [plan for plan, trial in tried if trial.idle], plans.of, found,
                          limits)


def _with_least_memory(plans: _Plans, taken: Plan) -> Plan:
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


def _specs(types: Sequence[ArrayType]) -> tuple[PartitionSpec, ...]:
    return tuple([t.sharding.spec for t in types])


def plans_made(stages: Mapping[str, Program], objective: Objective) -> int:
    """How many plans were made for a program, of which the one with these stages was taken."""
    *_, local = stages.values()
    found = facts_of(stages["resharded"], local, objective, local)
    return 1 + sum([trial.when(found) for trial in TRIALS])


def _lighter(objective: Objective) -> Iterator[Objective]:
    """Objectives whose plans need less and less memory, in most cases; XLA's plan is one of them.
    """
    if objective.name == "xla":
        return
    yield from with_lighter_blocks(objective._replace(name="time"))
    yield no_repeats(objective)._replace(name="memory")
    yield as_xla(objective)


def _refuse(least: Plan, limit: int) -> NoReturn:
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
