"""Trials: partitions a program with changes applied, and says what that moves and costs."""
from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ...ir.diagnostics.errors import ShardtraceError
from ...ir.ops.communication.collective_kinds import each_collective
from ...ir.program import Program
from ...partitioner.collectives import CollectiveRecord, collectives, each_part
from ...partitioner.cost.figures import Figures, figures
from ...partitioner.cost.links import collective_seconds
from ...partitioner.cost.schedule import exchange_seconds
from ...partitioner.cost.topology import Topology
from ...partitioner.pipeline import Partitioned
from ...partitioner.plans import plans_made
from ..reasons.value_paths import Place, places
from .changes import Argument, Change, Result
from .code.changes import Rewritten
from .interleaving.change import Interleave
from .repetition import PERIODS, Run, Shortened, runs, shortened

RATE = 6600        # equations that an ordinary processor partitions in a second
_TRIAL = 50        # fixed cost of a trial, in equations
MUCH = 1.25        # factor from which memory or operations are much more
_NEAR = 1.1        # factor of step time of the first plan beyond which no other one is made
_WORTH = 2         # a whole program has at least so many times the equations of a short one
REFUSED = (TypeError, ValueError, LookupError, RuntimeError, ShardtraceError, AssertionError)


class Subject(Protocol):
    """A program that can be partitioned again with changes (driver/analysis/applied_changes.py).

    donated: for each argument, whether results may take its buffer.
    """

    @property
    def partitioned(self) -> Partitioned: ...

    @property
    def donated(self) -> Sequence[bool]: ...

    def changed(self, changes: Sequence[Change], longest: float) -> Partitioned:
        """The partitioned program with the changes made. Raises TypeError or ValueError if it is
        invalid.

        longest: seconds of a step beyond which no other plan is made.
        """
        ...

    def apply(self, changes: Sequence[Change]) -> Any:
        """What the user has with the changes made: a function for a function."""
        ...

    def part(self, short: Shortened, compared: bool) -> Subject:
        """The subject for a program that has some of the arguments, equations and results.
        compared: whether several plans are made of it.
        """
        ...


@dataclass
class Budget:
    """What the trials of a search may take. left: in equations (see `work`)."""
    left: float

    @classmethod
    def of(cls, seconds: float) -> Budget:
        """So many seconds of an ordinary processor."""
        return cls(seconds * RATE)


@dataclass(frozen=True)
class Tried:
    """A program with changes made. received_bytes: of its busiest device. The other figures cost
    more and are computed on demand.
    """
    received_bytes: int
    found: Callable[[], Figures]
    partitioned: Partitioned
    at: dict[tuple, int]           # (kind, file, line, calls) -> bytes over all runs
    axes: dict[tuple, frozenset[str]]

    @functools.cached_property
    def figures(self) -> Figures:
        return self.found()

    def seconds(self, key: tuple, topology: Topology) -> float:
        """Seconds that the collectives of a kind and line take over all runs, one after the other.
        """
        return sum(seconds * r.count for r, seconds in costed_parts(
            self.partitioned.local, topology) if key_of(r) == key)


@dataclass(frozen=True)
class Shortening:
    """How a shortened program relates to the whole one.

    results: for each result its number in the whole program. ratio: how much longer the whole
    program is. gone: how many more repetitions it has. translated: from a change of the whole
    program to one of the short one; None if it does not apply.
    """
    results: Sequence[int]
    ratio: float
    gone: int
    translated: Callable[[Change], Change | None]


class Trials:
    """Changes tried on one program. Each costs `work` of the budget, once.

    base: the figures without changes. compared: whether several plans are made. short: if it is a
    shortened program, how.
    """

    def __init__(self, subject: Subject, topology: Topology, base: Figures, equations: int,
                 budget: Budget, compared: bool = True, short: Shortening | None = None) -> None:
        self.subject, self.topology, self.base = subject, topology, base
        self.partitioned: Partitioned = subject.partitioned
        self.equations, self.budget, self.compared = equations, budget, compared
        short = short or Shortening(range(len(self.partitioned.out_specs)), 1.0, 0, lambda c: c)
        self.results, self.ratio, self.gone = short.results, short.ratio, short.gone
        self.translated = short.translated
        self.work = work_of(self.partitioned, equations, compared)
        self.least = work_of(self.partitioned, equations, False)
        self.before = _summary(self.partitioned, lambda: base)
        self._tried: dict[frozenset[Change], Tried | None] = {}

    def apart(self) -> Trials:
        """Others within the same budget: what they try is not among what was tried here."""
        found = copy.copy(self)
        found._tried = {}
        return found

    @functools.cached_property
    def longest(self) -> float:
        """Seconds of a step of the plan made first beyond which no other one is made, as it is so
        much longer than that made first without changes.
        """
        own = self.partitioned
        if own.taken == own.objective:
            return self.base.time * _NEAR
        self.budget.left -= self.least
        first = self.subject.changed((), 0.0)
        return figures(first.local, self.topology, self.subject.donated).time * _NEAR

    @functools.cached_property
    def runs(self) -> list[Run]:
        """What the program repeats."""
        return runs(self.partitioned.stages["inlined"])

    @functools.cached_property
    def latency(self) -> float:
        """Seconds of latency of the collectives, without changes."""
        return self.latency_of(self.before)

    def latency_of(self, tried: Tried) -> float:
        """Seconds that the collectives of a trial would take if they moved next to nothing."""
        return sum(collective_seconds(self.topology, use.kind, use.mesh_axes, use.group_size, 0, 1)
                   * use.count for use in each_collective(tried.partitioned.local))

    def much(self, peak_bytes: int, flops: float) -> bool:
        """Is this much more memory, or many more operations, than without changes?"""
        return peak_bytes > self.base.peak_bytes * MUCH or flops > self.base.flops * MUCH

    def known(self, changes: Sequence[Change]) -> tuple[Tried | None, ...]:
        """(the result of a trial of these changes,); () if they were not tried."""
        key = frozenset(changes)
        return (self._tried[key],) if key in self._tried else ()

    def attempt(self, changes: Sequence[Change], compared: bool = True) -> Tried | None:
        """Try these changes; None if the program is invalid with them. compared: are several plans
        made, if it pays?
        """
        key = frozenset(changes)
        if key in self._tried:
            return self._tried[key]
        result: Tried | None = None
        made = [c for c in map(self.translated, changes) if c is not None]
        if made:
            longest = self.longest if compared else 0.0
            self.budget.left -= self.work
            with warnings.catch_warnings():  # warnings are about the trial, not the user's program
                warnings.simplefilter("ignore")
                try:
                    partitioned = self.subject.changed(made, longest)
                except REFUSED:
                    pass                     # the program does not type-check that way
                else:
                    result = _summary(partitioned, functools.partial(
                        figures, partitioned.local, self.topology, self.subject.donated))
            if result is None or result.figures.time > longest:     # only one plan was made
                self.budget.left += self.work - self.least
        self._tried[key] = result
        return result


def short_trials(whole: Trials, topology: Topology, compared: bool, periods: int = PERIODS
                 ) -> Trials | None:
    """Trials of the program with so many repetitions of what it repeats; None if it repeats little.
    compared: whether several plans are made.
    """
    inlined = whole.partitioned.stages["inlined"]
    short = shortened(inlined, periods, whole.runs)
    if short is None or len(short.program.eqns) * _WORTH > len(inlined.eqns):
        return None
    try:
        subject = whole.subject.part(short, compared)
    except REFUSED:
        return None
    partitioned = subject.partitioned
    whole.budget.left -= work_of(partitioned, len(short.program.eqns), compared)
    place: dict[Any, Place] = {v: at for at, v, _ in places(partitioned.stages["inlined"])}
    same: dict[Place, Place] = {at: place[v] for at, v, _ in places(inlined) if v in place}
    arguments = {old: new for new, old in enumerate(short.arguments)}
    results = {old: new for new, old in enumerate(short.results)}

    def translated(change: Change) -> Change | None:
        if isinstance(change, Argument | Result):
            new = (arguments if isinstance(change, Argument) else results).get(change.index)
            return None if new is None else replace(change, index=new)
        if isinstance(change, Interleave) and change.arguments:
            own = [arguments[i] for i in change.arguments if i in arguments]
            return change.of(own) if own else None
        if isinstance(change, Rewritten | Interleave):       # identified by its line
            return change
        found = tuple([same[p] for p in change.places if p in same])
        if not found:
            return None
        return (replace(change, places=found) if "places" in change.__dataclass_fields__
                else replace(change, place=found[0]))  # type: ignore[call-arg]

    base = figures(partitioned.local, topology, subject.donated)
    ratio = len(inlined.eqns) / len(short.program.eqns)
    return Trials(subject, topology, base, len(place), whole.budget, compared,
                  Shortening(short.results, ratio, short.gone, translated))


def work_of(partitioned: Partitioned, equations: int, compared: bool = True) -> float:
    """The work of a trial of a program, with so many equations to count."""
    return work(equations, len(partitioned.mesh.axis_names),
                plans_made(partitioned.stages, partitioned.objective) if compared else 1)


def work(equations: int, axes: int, plans: int = 2) -> float:
    """The work of a trial, in equations of a program with one or two mesh axes for which two plans
    are compared: the number of layouts grows with the square of the axes.
    """
    return (equations + _TRIAL) * max(1.0, axes * axes / 8) * plans / 2


def _summary(partitioned: Partitioned, found: Callable[[], Figures]) -> Tried:
    at: dict[tuple, int] = {}
    axes: dict[tuple, frozenset[str]] = {}
    for r, _ in each_part(collectives(partitioned.local)):
        at[key_of(r)] = at.get(key_of(r), 0) + r.total
        axes[key_of(r)] = axes.get(key_of(r), frozenset()) | frozenset(map(str, r.mesh_axes))
    received = sum(use.received_bytes * use.count for use in each_collective(partitioned.local))
    return Tried(received, found, partitioned, at, axes)


def costed_parts(program: Program, topology: Topology) -> list[tuple[CollectiveRecord, float]]:
    """What a LOCAL program exchanges, operand by operand, with the seconds of one run of each: its
    share of those of its collective.
    """
    return [(part, exchange_seconds(topology, r) * share) for r in collectives(program)
            for part, share in each_part([r])]


def key_of(record: CollectiveRecord) -> tuple:
    """The identity of a collective across traces: its kind and line, and the calls of that."""
    return (record.kind, record.source.file, record.source.line, record.source.chain)
