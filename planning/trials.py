"""Trials: partitions a plan as a whole program and costs it.

A plan says how arguments and results are laid out, and which values inside are constrained. It is
partitioned like any other program. Its figures are those of `explain`: the time of a step, with
collectives overlapping computation, and the memory that a device holds at its peak. The partitioner
makes several programs and takes the best (partitioner/plans.py). The first one takes a quarter of
the time and is nearly always the best, so a plan that is far behind with it is judged by it alone.
"""
from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

from ..ir.diagnostics.errors import MemoryLimitError, ShardtraceError
from ..ir.meshes.mesh import AbstractMesh
from ..ir.passes import DONATED
from ..ir.program import Program, Var
from ..ir.source.location import UNKNOWN, Location
from ..ir.spec import PartitionSpec, spec_from_entries
from ..ir.support.named_tuple import NamedTuple
from ..partitioner.cost.figures import Figures, figures
from ..partitioner.cost.memory import Memory
from ..partitioner.cost.prices import Objective
from ..partitioner.cost.topology import Topology
from ..partitioner.pipeline import Options, partition
from ..partitioner.stages import with_attribute
from ..report.advice.changes import Constrain, edited
from ..report.reasons.value_paths import Place, places
from .model.groups import Groups
from .model.model import Model

HEAVY = 1.3                  # times the limit of memory
BEHIND = 1.1               # times the time of the best: what takes longer at first is not it
COMPARED = 3               # partitions that a comparison of several counts for

Specs = tuple[PartitionSpec | None, ...]


class InnerConstraint(NamedTuple):
    """A constraint on a value inside, where it is computed. group: the number of its group."""
    place: Place
    spec: PartitionSpec
    group: int


class Plan(NamedTuple):
    """arguments, results: their specs; None where the partitioner may choose."""
    arguments: Specs
    results: Specs
    inside: tuple[InnerConstraint, ...] = ()


class Trial(NamedTuple):
    """A plan with its figures. peak: the bytes that a device holds, or 0 if not determined, for a
    plan far behind one that fits, which is judged by the program made first alone. fits: whether
    it keeps within the limit of memory. limited: whether it does so only with collectives chosen
    under that limit.
    """
    plan: Plan
    figures: Figures
    peak: int
    fits: bool
    limited: bool = False

    @property
    def rank(self) -> tuple[float, ...]:
        """Orders trials: those within the limit first, then by time, memory and constraints."""
        f = self.figures
        return (0 if self.fits else self.peak, round(f.time * 1e15), self.peak,
                len(self.plan.inside), f.received_bytes)

    @property
    def runs(self) -> tuple[float, ...]:
        """Equal for plans that run alike."""
        return self.figures.time, self.peak, self.figures.received_bytes


class Trials:
    """Judges plans of one program on one mesh. limit: bytes that a device may hold; 0 for any."""

    def __init__(self, program: Program, mesh: AbstractMesh, donated: Sequence[bool],
                 objective: Objective, topology: Topology) -> None:
        self.program, self.mesh, self.donated = program, mesh, tuple(donated)
        self.objective, self.topology, self.limit = objective, topology, objective.memory_limit
        self.made = {place: (v, eqn) for place, v, eqn in places(program)}
        self.found: dict[Plan, Trial | None] = {}
        self.programs: dict[tuple[InnerConstraint, ...], Program] = {}   # with these inside
        self.made_so_far = 0                 # partitions
        self.brought: set[Plan] = set()
        self._best = math.inf                # seconds of the best that fits

    def trial(self, plan: Plan) -> Trial | None:
        """The figures of a plan; None if the program cannot be partitioned that way."""
        if plan not in self.found:
            found = self.found[plan] = self._trial(plan, BEHIND * self._best)
            if found is not None and found.fits:
                self._best = min(self._best, found.figures.time)
        return self.found[plan]

    def changes(self, plan: Plan) -> list[Constrain]:
        """The constraints inside of a plan, as changes of the program."""
        found = []
        for inside in plan.inside:
            var, eqn = self.made[inside.place]
            where = eqn.location if eqn is not None else self.around(inside.place)
            found.append(Constrain((inside.place,), var.name or "", inside.spec, where))
        return found

    def around(self, place: Place) -> Location:
        """The location of the loop or branch of which a value is a parameter."""
        program, location = self.program, UNKNOWN
        for n, name, j in place.path:
            eqn = program.eqns[n]
            location = eqn.location
            held = eqn.params[name]
            program = held if j < 0 else held[j]
        return location

    def compared(self, trial: Trial) -> Trial:
        """A trial of a plan far behind, with the best of several programs."""
        found = self._trial(trial.plan, math.inf)
        assert found is not None
        self.found[trial.plan] = found
        if found.fits:
            self._best = min(self._best, found.figures.time)
        return found

    def _trial(self, plan: Plan, near: float) -> Trial | None:
        found = self._partitioned(plan, 0, near)
        self.made_so_far += 1
        if found is None:
            return None
        if found.time > near:
            return Trial(plan, replace(found, held=lambda: self._again(plan)), 0, True)
        self.made_so_far += COMPARED
        memory, peak = found.memory, found.peak_bytes
        return Trial(plan, replace(found, held=lambda: memory), peak,
                     not self.limit or peak <= self.limit)

    def _again(self, plan: Plan) -> Memory:
        """What a plan holds that is far behind: its program was not kept."""
        found = self._partitioned(plan, 0, 0.0)
        assert found is not None
        return found.memory

    def within(self, trial: Trial) -> Trial:
        """A trial that does not fit, with collectives under which it does; None if there are none.
        (A plan far above the limit is not brought below it by other collectives.)
        """
        if trial.plan in self.brought or trial.figures.peak_bytes > HEAVY * self.limit:
            return trial
        self.brought.add(trial.plan)
        self.made_so_far += COMPARED
        found = self._partitioned(trial.plan, self.limit)
        if found is not None:
            trial = self.found[trial.plan] = Trial(trial.plan, found, found.peak_bytes, True, True)
            self._best = min(self._best, found.time)
        return trial

    def lightest(self, trial: Trial) -> Trial:
        """A trial that does not fit, with the collectives that hold least."""
        self.made_so_far += COMPARED
        found = self._partitioned(trial.plan, 0, objective="memory")
        return trial if found is None or found.peak_bytes >= trial.peak else (
            trial._replace(figures=found, peak=found.peak_bytes))

    def program_of(self, plan: Plan) -> Program:
        """The program with the constraints inside of a plan."""
        found = self.programs.get(plan.inside)
        if found is None:
            found = edited(self.program, self.changes(plan), self.mesh)
            found = self.programs[plan.inside] = with_attribute(found, DONATED, self.donated)
        return found

    def _partitioned(self, plan: Plan, limit: int, compared: float = math.inf, objective: str = ""
                     ) -> Figures | None:
        program = self.program_of(plan)
        options = Options(True, False, objective or self.objective.name, self.objective.hardware,
                          limit, compared, draft=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = partition(program, mesh=self.mesh, in_shardings=plan.arguments,
                                 out_shardings=plan.results, options=options)
            except (MemoryLimitError, ShardtraceError, ValueError):
                return None
        return figures(made.local, self.topology, self.donated)


class RealisedPlans:
    """The plans that implement a choice of layouts, with more or fewer constraints inside."""

    def __init__(self, model: Model, pinned: Sequence[PartitionSpec | None],
                 pinned_results: Sequence[PartitionSpec | None]) -> None:
        self.model, self.groups = model, model.values
        self.pinned, self.pinned_results = pinned, pinned_results
        self.carries, self.made = _places(self.groups)

    def spec(self, v: Var, choice: Sequence[int]) -> PartitionSpec:
        g = self.model.number[self.groups.of[v]]
        return spec_from_entries(self.model.entries(v, self.model.layouts[g][choice[g]]))

    def plans(self, choice: Sequence[int]) -> list[Plan]:
        """Without constraints inside; with those on what loops carry; and with one on every
        product.
        """
        program = self.groups.program
        arguments = tuple([self.spec(v, choice) if pin is None else pin
                           for v, pin in zip(program.invars, self.pinned, strict=True)])
        results = tuple([pin if pin is not None else self.spec(v, choice)
                         if isinstance(v, Var) and v.aval.shape else None
                         for v, pin in zip(program.outvars, self.pinned_results, strict=True)])
        states = {self.groups.of[v] for v in program.invars}
        kept = tuple([spec if pin is not None or isinstance(v, Var)
                      and self.groups.of.get(v) in states else None for v, spec, pin in zip(
                          program.outvars, results, self.pinned_results, strict=True)])
        carried = self._inside(self.carries, choice)
        every = (*carried, *self._inside(self.made, choice))
        return [Plan(arguments, own, inside) for own in (kept, results)
                for inside in ((), carried, every)]

    def _inside(self, found: Sequence[tuple[Place, Var]], choice: Sequence[int]
                ) -> tuple[InnerConstraint, ...]:
        return tuple([
            InnerConstraint(place, self.spec(v, choice), self.model.number[self.groups.of[v]])
            for place, v in found])


def _places(groups: Groups) -> tuple[list[tuple[Place, Var]], list[tuple[Place, Var]]]:
    """What loops carry, and the results of equations between groups; arguments are not among them.
    """
    program = groups.program
    carries = [(place, v) for place, v, _ in places(program)
               if place.path and place.equation < 0 and _can_be_pinned(groups, v)]
    made = [(Place(use.path, use.number, k), v) for use in groups.between
            for k, v in enumerate(use.equation.outvars)
            if _can_be_pinned(groups, v)]
    return carries, made


def _can_be_pinned(groups: Groups, v: Var) -> bool:
    """Is it a value on the mesh, not only made of constants, and laid out by no argument? (What is
    inside of a `shard_map` is in no group.)
    """
    return bool(v.aval.shape and v.aval.mesh.axis_names and v in groups.of
                ) and not groups.of[v].holds_argument
