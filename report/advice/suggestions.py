"""Suggestions that avoid a collective: each candidate change is partitioned and costed as a whole.

A change counts if the collective goes or moves less, the program receives no more bytes, and its
modelled time is lower (or its communication time, if the collective was hidden behind computation).
Ranked first are those that remove the collective and lower the time; of these, those that raise
neither memory nor operations; of these, the fastest. A change that would also alter the sharding of
results is tried with results pinned, too. If no single change removes the collective, pairs of the
most promising are tried. The search is bounded by the number of equations it may partition, not by
seconds, so it is deterministic; the number of untried candidates is reported. For a program from a
text there is a bound for all collectives together, as it may have been written to keep us busy.
"""
from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...ir.diagnostics.errors import ShardtraceError
from ...ir.ops.communication.collective_kinds import each_collective
from ...ir.support.progress import counted
from ...partitioner.collectives import CollectiveRecord, collectives
from ...partitioner.cost.figures import Figures, figures
from ...partitioner.cost.topology import Topology
from ...partitioner.pipeline import Partitioned
from ..reasons.causes import Cause
from .candidates import Candidates
from .changes import Argument, Change, Constrain, Respec, Result, rows, text_of

SINGLES = 48       # candidates tried for one collective, fewer of a large program
PAIRS = 24
WORK = 10_000      # equations that the trials for one collective may partition between them
FEWEST = 6         # candidates that are tried however large the program
WORK_ON_TEXT = 10_000    # `work` of all trials of a program from a text
_TRIAL = 50        # equations that take as long as what a trial takes besides
REFUSED = (TypeError, ValueError, LookupError, RuntimeError, ShardtraceError, AssertionError)
_SAME = 1e-9       # differences of time below this part are none
_ALIKE = 0.02      # of two that are as fast within this part the simpler comes first
_HARM = (1.01, 1.25)     # more memory or operations than this counts as raising them, or much so


class Subject(Protocol):
    """A program that can be partitioned again with changes (driver/analysis/applied_changes.py).

    donated: per argument, whether results may take its buffer. allowance: the `work` that all
    trials may take together.
    """

    @property
    def partitioned(self) -> Partitioned: ...

    @property
    def donated(self) -> Sequence[bool]: ...

    @property
    def allowance(self) -> float: ...

    def changed(self, changes: Sequence[Change]) -> Partitioned:
        """The program with the changes made. Raises TypeError or ValueError where it has none."""
        ...

    def apply(self, changes: Sequence[Change]) -> Any:
        """What the user has with the changes made: a function for a function."""
        ...


@dataclass(frozen=True)
class Suggestion:
    """A change that avoids a collective, and the whole program's figures after it.

    removes: no collective of its kind over its axes is left at its line (else it moves less).
    received_bytes, peak_bytes: of one device; time: seconds of a step; flops: operations of one
    device.
    """
    text: str
    received_bytes: int
    time: float
    peak_bytes: int
    flops: float
    removes: bool
    changes: tuple[Change, ...]
    figures: Figures = field(repr=False, compare=False)
    _apply: Callable[[Sequence[Change]], Any] = field(repr=False, compare=False)
    _left: int = field(default=0, repr=False, compare=False)

    def apply(self) -> Any:
        """The function with the change made; arguments are brought to their new shardings."""
        return self._apply(self.changes)

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "removes": self.removes, "received_bytes": self.received_bytes,
                "time": self.time, "peak_bytes": self.peak_bytes, "flops": self.flops}

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Found:
    """What the search for one collective gave. tried, candidates: of the single changes."""
    suggestions: tuple[Suggestion, ...]
    tried: int
    candidates: int


@dataclass(frozen=True)
class _Tried:
    """A program with changes made. received_bytes: of its busiest device; the other figures, which
    cost more to find, only where they are asked for.
    """
    received_bytes: int
    found: Callable[[], Figures]
    partitioned: Partitioned
    at: dict[tuple, int]           # (kind, file, line) -> bytes over all runs
    axes: dict[tuple, frozenset[str]]

    @functools.cached_property
    def figures(self) -> Figures:
        return self.found()


class Search:
    """Tries changes of one program; what was tried once is remembered.

    trials: how many candidates for one collective; by default fewer of a large program.
    """

    def __init__(self, subject: Subject, topology: Topology, base: Figures,
                 candidates: Candidates, trials: int | None = None) -> None:
        self.subject, self.topology, self.base = subject, topology, base
        self.candidates = candidates
        self.tried: dict[frozenset[Change], _Tried | None] = {}
        self.found: dict[tuple, Found] = {}
        self.before = _summary(subject.partitioned, lambda: base)
        self.trials = trials or min(SINGLES, max(FEWEST, WORK // max(1, len(candidates.place))))
        self.work = work(len(candidates.place), len(subject.partitioned.mesh.axis_names))
        self.left = math.inf if trials else subject.allowance

    def suggestions(self, record: CollectiveRecord, cause: Cause) -> Found:
        """What avoids one collective, best first."""
        key = (_key(record), record.mesh_axes, cause.text)
        found = self.found.get(key)
        if found is None:
            found = self.found[key] = self.searched(record, cause)
        return found

    def searched(self, record: CollectiveRecord, cause: Cause) -> Found:
        candidates = self.candidates.of(record, cause)
        singles = candidates[:self.trials]
        found: list[Suggestion] = []
        promising: list[tuple[tuple, tuple[Change, ...]]] = []
        affordable = self.trials >= SINGLES or len(singles) == len(candidates)
        count = 0
        for changes in counted(singles, f"changes tried for {record.kind} of {record.source}"):
            if self.left <= 0:
                break
            count += 1
            tried = self.weighed(changes, record, found)
            if affordable and tried is not None and self.differs(tried, record):
                times = tried.figures.times
                promising.append(((times.communication, times.step), changes))
        if affordable and not any(self.rank(s)[:3] == _BEST for s in found):
            promising.sort(key=lambda p: p[0])
            pairs = itertools.combinations([c for _, c in promising[:8]], 2)
            chosen = list(itertools.islice(pairs, min(PAIRS, self.trials)))
            text = f"pairs of changes tried for {record.kind} of {record.source}"
            for one, other in counted(chosen, text):
                if self.left > 0 and not set(map(_target, one)) & set(map(_target, other)):
                    self.weighed((*one, *other), record, found)
        found.sort(key=self.rank)
        return Found(tuple(self.without_repeats(found)), count, len(candidates))

    def without_repeats(self, found: Sequence[Suggestion]) -> list[Suggestion]:
        """Not two that do the same, nor a pair that does no better than one of its changes."""
        kept: list[Suggestion] = []
        for s in found:
            if not any(set(k.changes) < set(s.changes) for k in kept):
                kept.append(s)
        return kept[:8]

    def weighed(self, changes: tuple[Change, ...], record: CollectiveRecord,
                found: list[Suggestion]) -> _Tried | None:
        """Try changes, and again with the results kept as they are; note what is good."""
        tried = self.attempt(changes)
        if tried is None:
            return None
        good = self.judged(changes, tried, record)
        if good is not None:
            found.append(good)
        asked = {c.index for c in changes if isinstance(c, Result)}
        kept = tuple(c for c in self.candidates.unchanged_results(tried.partitioned)
                     if c.index not in asked)
        if kept and not (good is not None and self.rank(good)[:3] == _BEST):
            again = self.attempt((*changes, *kept))
            good = self.judged((*changes, *kept), again, record) if again is not None else None
            if good is not None:
                found.append(good)
        return tried

    def attempt(self, changes: Sequence[Change]) -> _Tried | None:
        key = frozenset(changes)
        if key in self.tried:
            return self.tried[key]
        self.left -= self.work
        result: _Tried | None = None
        with warnings.catch_warnings():      # what a trial warns of is not about the user's program
            warnings.simplefilter("ignore")
            try:
                partitioned = self.subject.changed(changes)
            except REFUSED:
                partitioned = None           # the program does not type-check that way
        if partitioned is not None:
            result = _summary(partitioned, functools.partial(
                figures, partitioned.local, self.topology, self.subject.donated))
        self.tried[key] = result
        return result

    def differs(self, tried: _Tried, record: CollectiveRecord) -> bool:
        """Does it change what the program moves, or the collective?"""
        key = _key(record)
        return (tried.received_bytes, tried.at.get(key)) != (
            self.base.received_bytes, self.before.at.get(key)) or (
            tried.figures.time != self.base.time)

    def judged(self, changes: Sequence[Change], tried: _Tried, record: CollectiveRecord
               ) -> Suggestion | None:
        base = self.base
        key = _key(record)
        axes = frozenset(map(str, record.mesh_axes))
        left = tried.at.get(key, 0)
        removes = not left or not (axes & tried.axes.get(key, frozenset()))
        if not removes and left >= self.before.at.get(key, 0):
            return None
        if tried.received_bytes > base.received_bytes:
            return None
        new = tried.figures
        hidden = new.time <= base.time * (1 + _SAME) and (
            new.times.communication < base.times.communication * (1 - _SAME))
        if not (new.time < base.time * (1 - _SAME) or hidden):
            return None
        return Suggestion(text_of(changes), new.received_bytes, new.time, new.peak_bytes, new.flops,
                          removes, tuple(changes), new, self.subject.apply, left)

    def harm(self, s: Suggestion) -> int:
        """Does it raise memory or operations: 0 no, 1 somewhat, 2 much?"""
        return sum(s.peak_bytes > self.base.peak_bytes * limit or s.flops > self.base.flops * limit
                   for limit in _HARM)

    def rank(self, s: Suggestion) -> tuple:
        # of equals rather what is written in the function, and less rather than more of it
        written = [row[0] for row in rows(s.changes)]
        effort = sum(_EFFORT.get(type(c), 2) if not isinstance(c, Respec)
                     else int(c.spec is not None) for c in written)
        grade = 2 if not s.removes else int(s._left > 0)
        pace = math.floor(math.log(max(s.time, 1e-12)) / math.log1p(_ALIKE))
        return (grade, s.time >= self.base.time * (1 - _SAME), self.harm(s), pace, effort,
                s.time, s.received_bytes, s.peak_bytes, len(written), s.text)


_BEST = (0, False, 0)           # removes it, lowers the time, raises nothing
_EFFORT = {Constrain: 3, Argument: 2, Result: 2}


def work(equations: int, axes: int) -> int:
    """What a trial takes, in equations of a program with one or two mesh axes: layouts to choose
    from are as the square of the axes."""
    return (equations + _TRIAL) * max(1, axes * axes // 4)


def _summary(partitioned: Partitioned, found: Callable[[], Figures]) -> _Tried:
    at: dict[tuple, int] = {}
    axes: dict[tuple, frozenset[str]] = {}
    for r in collectives(partitioned.local):
        at[_key(r)] = at.get(_key(r), 0) + r.total
        axes[_key(r)] = axes.get(_key(r), frozenset()) | frozenset(map(str, r.mesh_axes))
    received = sum(use.received_bytes * use.count for use in each_collective(partitioned.local))
    return _Tried(received, found, partitioned, at, axes)


def _key(record: CollectiveRecord) -> tuple:
    return (record.kind, record.source.file, record.source.line)


def _target(change: Change) -> tuple:
    if isinstance(change, Argument | Result):
        return (type(change).__name__, change.index)
    return ("inside", change.places)
