"""What a partitioned program exchanges, why, and what it costs: the data of an explanation."""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..ir.support.collector import collector_paused
from ..partitioner.collectives import collectives
from ..partitioner.cost.figures import Figures
from ..partitioner.cost.memory import Memory
from ..partitioner.cost.schedule import Times, exchange_seconds
from ..partitioner.cost.timeline import Event, timeline
from ..partitioner.cost.topology import Topology
from ..partitioner.pipeline import Partitioned
from .advice.layouts.freedoms import Freedoms
from .advice.suggestion import Suggestion
from .advice.suggestions import SECONDS, Search
from .advice.trials import Subject, key_of
from .explained_collective import ExplainedCollective
from .explainer import Explainer
from .reasons.explain_collective import Reasons
from .root_causes import RootCause, Roots, root_causes

_TRIED = 3          # root causes of which it is looked for what avoids them before they are ordered
_NEARLY = 0.85      # of the most that a suggestion is worth: as good, and of a costlier cause
_MOST = 0.5         # of what several changes save: it is about the one that saves more alone


class Analysis:
    """The collectives of a partitioned program with their causes, and the totals.

    collectives: in program order; parts: the same, operand by operand. topology: the hardware and
    where the mesh lies on it. figures: the totals.
    """

    def __init__(self, subject: Subject, topology: Topology, name: str = "",
                 trials: int | None = None, suggest_seconds: float = SECONDS) -> None:
        self.subject, self.topology = subject, topology
        self.partitioned: Partitioned = subject.partitioned
        local = self.partitioned.local
        self.name = name or local.name
        self.explainer = Explainer(subject, topology, trials, suggest_seconds)
        with collector_paused():
            self.collectives = tuple([ExplainedCollective(
                r, exchange_seconds(topology, r), self.explainer) for r in collectives(local)])
        self.parts = tuple([part for c in self.collectives for part in c.parts or (c,)])
        self.explainer.records = [(c.record, c.total_time) for c in self.parts]
        self.known_warnings: dict[str, tuple[Any, ...]] = {}     # of warnings/warnings.py

    @property
    def reasons(self) -> Reasons:
        """What finds the causes."""
        return self.explainer.reasons

    @property
    def figures(self) -> Figures:
        return self.explainer.figures

    @property
    def search(self) -> Search:
        """What tries changes of the program, within one budget."""
        return self.explainer.search

    @property
    def freedoms(self) -> Freedoms | None:
        """The freedoms of the arguments; None if there are not several, or without propagation."""
        return self.explainer.freedoms

    @functools.cached_property
    def root_causes(self) -> list[RootCause]:
        """What is behind the collectives: annotations; first what is worth most if it is changed,
        as the suggestions for the first few say, then that with the costliest collectives.
        """
        searched = {id(c): c for cause in self.causes_by_cost[:_TRIED]
                    for c in [cause.groups[0][0]]}
        for c in [*searched.values()]:
            s = self._first(c)
            other = None if s is None else self._lessened(s, c)
            if s is not None and other is not None:
                self.search.add(s, other.largest.record, other.cause)
                searched.setdefault(id(other), other)
        best = [(s, c) for c in searched.values() for s in [self._first(c)] if s is not None]
        spare = max([self.time - s.time for s, _ in best if not self._takes_much(s)], default=0.0)
        best = [(s, c) for s, c in best if not self._takes_much(s)
                or self.time - s.time > spare / _NEARLY]
        most = max([s.worth for s, _ in best], default=0.0)
        least = min([s.time for s, _ in best if s.worth >= _NEARLY * most], default=0.0)
        best.sort(key=lambda found: (
            found[0].worth < _NEARLY * most,
            self.time - found[0].time < _NEARLY * (self.time - least),
            not found[0].lessens))                              # what saves it only elsewhere
        for s, c in best:
            causes = self._causes_of(s, c)
            c = causes[0].groups[0][0]           # what is shown first has to be what avoids it
            first = self._first(c)
            if first is not None and (first is s or self._causes_of(first, c)[0].text
                                      == causes[0].text):
                return causes
        causes = self._causes_of(*best[0]) if best else self.causes_by_cost
        return causes if best and self._first(causes[0].groups[0][0]) else self.causes_by_cost

    def _first(self, c: ExplainedCollective) -> Suggestion | None:
        """The best suggestion for a collective."""
        return next(iter(c.suggestions), None)

    def _takes_much(self, s: Suggestion) -> bool:
        """Does it take much more memory or operations?"""
        return self.search.whole.much(s.peak_bytes, s.flops)

    def _lessened(self, s: Suggestion, c: ExplainedCollective) -> ExplainedCollective | None:
        """The costliest collective that a suggestion found for another one makes less, first of
        those that come from what it changes; None if the other one is such a one.
        """
        less, changed = self.search.lessened(s), self.roots.rows.changed(s.changes)

        def own(c: ExplainedCollective) -> bool:
            return not changed or not changed.isdisjoint(self.roots.of[id(c)])

        if not less or key_of(c.record) in less and own(c):
            return None
        return max([one for one in self.parts if key_of(one.record) in less],
                   key=lambda one: (own(one), one.total_time), default=None)

    def _causes_of(self, s: Suggestion, c: ExplainedCollective) -> list[RootCause]:
        """The root causes, first that which a suggestion for a collective changes; of several
        changes, what the one changes that saves most of it alone.
        """
        saved = {change: self.time - tried.figures.time for change in s.changes
                 for tried in self.search.whole.known((change,)) if tried is not None}
        most = max(saved, key=lambda change: saved[change], default=None)
        changes = s.changes
        if most is not None and saved[most] > _MOST * (self.time - s.time):
            changes = (most,)
        with collector_paused():
            return root_causes(self.roots, changes, c)

    @functools.cached_property
    def roots(self) -> Roots:
        """The annotations that each collective, or part of one, is there for."""
        return Roots(self.parts, self.partitioned, self.freedoms)

    @functools.cached_property
    def causes_by_cost(self) -> list[RootCause]:
        """The root causes in an order that needs no suggestions: costliest collectives first."""
        with collector_paused():
            return root_causes(self.roots)

    # -- totals ----------------------------------------------------------------------------------

    @property
    def received_bytes(self) -> int:
        """Bytes that the busiest device receives in one run."""
        return self.figures.received_bytes

    @property
    def times(self) -> Times:
        return self.figures.times

    @property
    def time(self) -> float:
        """Seconds of one run on the chosen hardware, communication overlapped."""
        return self.figures.time

    @property
    def memory(self) -> Memory:
        return self.figures.memory

    @property
    def peak_bytes(self) -> int:
        """Most bytes that one device holds."""
        return self.figures.peak_bytes

    @property
    def flops(self) -> float:
        """Operations of one device."""
        return self.figures.flops

    @property
    def arithmetic_intensity(self) -> float:
        """Operations for each byte through memory."""
        bytes_ = self.figures.work.hbm_bytes
        return self.flops / bytes_ if bytes_ else 0.0

    @functools.cached_property
    def lower_bound(self) -> int:
        """Bytes that the layouts of this program make a device receive, whatever the algorithm.

        For each change of layout the elements that the worst-off device lacks are counted; a
        change that takes several collectives counts once.
        """
        moves: dict[int, int] = {}
        total = 0
        for c in self.parts:
            if c.cause.move is None:
                total += c.lower_bound * c.count
            else:
                key = id(c.cause.move)
                moves[key] = max(moves.get(key, 0), c.lower_bound * c.count)
        return total + sum(moves.values())

    @property
    def gap(self) -> float:
        """Received bytes over the lower bound."""
        bound = self.lower_bound
        return self.received_bytes / bound if bound else 1.0

    def utilisation(self) -> float:
        """Part of the device's peak rate (for bfloat16) that a step reaches."""
        peak = self.topology.hardware.peak_of("bfloat16")
        return self.flops / (self.time * peak) if self.time else 0.0

    def timeline(self) -> tuple[Event, ...]:
        """When each equation of a step runs, and on which stream; for pictures of a step."""
        return timeline(self.partitioned.local, self.topology)

    def at(self, line: int, file: str = "") -> Sequence[ExplainedCollective]:
        """The collectives that a line of the user's causes, or the parts of them that it does."""
        return [c for c in self.parts
                if c.source.line == line and (not file or c.source.file.endswith(file))]
