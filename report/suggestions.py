"""What avoids a collective, tried: each candidate change is partitioned and costed as a whole.

Kept are the changes after which the collective is gone or moves less, the program receives no more
bytes, and its modelled time is lower (or, where the collective was hidden behind computation, its
communication is). Best first: those that remove the collective, of these the ones that raise
neither memory nor operations, of these the fastest. Where no single change removes it, pairs of the
most promising are tried. The search is bounded by a count, so its result is always the same.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..ir.errors import ShardtraceError
from ..partitioner.collectives import CollectiveRecord, collectives
from ..partitioner.pipeline import Partitioned
from .candidates import Candidates
from .changes import Change, Constrain, Respec, text_of
from .figures import Figures, figures
from .reasons import Cause
from .topology import Topology

SINGLES = 40       # candidates tried for one collective, fewer of a large program
PAIRS = 24
WORK = 12_000      # equations that the trials for one collective may partition between them
REFUSED = (TypeError, ValueError, ShardtraceError, AssertionError)
_SAME = 1e-9       # differences of time below this part are none


class Subject(Protocol):
    """A program that can be partitioned again with changes (driver/changed.py).

    donated: per argument, whether results may take its buffer.
    """

    @property
    def partitioned(self) -> Partitioned: ...

    @property
    def donated(self) -> Sequence[bool]: ...

    def changed(self, changes: Sequence[Change]) -> Partitioned:
        """The program with the changes made. Raises TypeError or ValueError where it has none."""
        ...

    def apply(self, changes: Sequence[Change]) -> Any:
        """What the user has with the changes made: a function for a function."""
        ...


@dataclass(frozen=True)
class Suggestion:
    """A change that avoids a collective, and the whole program's figures after it.

    removes: the collective is gone (else it moves less). received_bytes, peak_bytes: of one device;
    time: seconds of a step; flops: operations of one device.
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

    def apply(self) -> Any:
        """The function with the change made; arguments are brought to their new shardings."""
        return self._apply(self.changes)

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "removes": self.removes, "received_bytes": self.received_bytes,
                "time": self.time, "peak_bytes": self.peak_bytes, "flops": self.flops}

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class _Tried:
    figures: Figures
    at: dict[tuple, int]           # (kind, file, line) -> bytes over all runs
    axes: dict[tuple, frozenset[str]]


class Search:
    """Tries changes of one program; what was tried once is remembered."""

    def __init__(self, subject: Subject, topology: Topology, base: Figures,
                 candidates: Candidates) -> None:
        self.subject, self.topology, self.base = subject, topology, base
        self.candidates = candidates
        self.tried: dict[frozenset[Change], _Tried | None] = {}
        self.before = _summary(collectives(subject.partitioned.local), base)
        self.trials = max(6, WORK // max(1, len(candidates.place)))

    def suggestions(self, record: CollectiveRecord, cause: Cause) -> tuple[Suggestion, ...]:
        """What avoids one collective, best first."""
        singles = self.candidates.of(record, cause)[:min(SINGLES, self.trials)]
        found: list[Suggestion] = []
        promising: list[tuple[tuple, Change]] = []
        for change in singles:
            tried = self.attempt((change,))
            if tried is None:
                continue
            good = self.judged((change,), tried, record)
            if good is not None:
                found.append(good)
            if (tried.figures.received_bytes, tried.figures.time) == (
                    self.base.received_bytes, self.base.time):
                continue                     # it changes nothing
            promising.append(((tried.figures.times.communication, tried.figures.time), change))
        if not any(s.removes and not self.harm(s) for s in found):
            promising.sort(key=lambda p: p[0])
            best = [c for _, c in promising[:8]]
            pairs = min(PAIRS, max(0, self.trials - len(singles)))
            for pair in list(itertools.combinations(best, 2))[:pairs]:
                if _target(pair[0]) == _target(pair[1]):
                    continue
                tried = self.attempt(pair)
                good = self.judged(pair, tried, record) if tried is not None else None
                if good is not None:
                    found.append(good)
        found.sort(key=self.rank)
        return tuple(self.without_repeats(found))

    def without_repeats(self, found: Sequence[Suggestion]) -> list[Suggestion]:
        """Not a pair that does no better than one of its changes."""
        kept: list[Suggestion] = []
        for s in found:
            parts = [k for k in kept if set(k.changes) < set(s.changes)]
            if not parts:
                kept.append(s)
        return kept[:8]

    def attempt(self, changes: Sequence[Change]) -> _Tried | None:
        key = frozenset(changes)
        if key in self.tried:
            return self.tried[key]
        result: _Tried | None = None
        try:
            partitioned = self.subject.changed(changes)
        except REFUSED:
            partitioned = None               # the program does not type-check that way
        if partitioned is not None:
            own = figures(partitioned.local, self.topology, self.subject.donated)
            result = _summary(collectives(partitioned.local), own)
        self.tried[key] = result
        return result

    def judged(self, changes: Sequence[Change], tried: _Tried, record: CollectiveRecord
               ) -> Suggestion | None:
        base, new = self.base, tried.figures
        key = _key(record)
        axes = frozenset(map(str, record.mesh_axes))
        left = tried.at.get(key, 0)
        removes = not left or not (axes & tried.axes.get(key, frozenset()))
        if not removes and left >= self.before.at.get(key, 0):
            return None
        if new.received_bytes > base.received_bytes:
            return None
        faster = new.time < base.time * (1 - _SAME)
        hidden = new.time <= base.time * (1 + _SAME) and (
            new.times.communication < base.times.communication * (1 - _SAME))
        if not (faster or hidden):
            return None
        return Suggestion(text_of(changes), new.received_bytes, new.time, new.peak_bytes, new.flops,
                          removes, tuple(changes), new, self.subject.apply)

    def harm(self, s: Suggestion) -> bool:
        """Does it raise memory or operations?"""
        return (s.peak_bytes > self.base.peak_bytes * 1.001
                or s.flops > self.base.flops * 1.001)

    def rank(self, s: Suggestion) -> tuple:
        # of equals rather what is written in the function, and less rather than more of it
        effort = sum(3 if isinstance(c, Constrain) else 2 if not isinstance(c, Respec)
                     else int(c.spec is not None) for c in s.changes)
        return (not s.removes, self.harm(s), s.time, s.received_bytes, s.peak_bytes,
                len(s.changes), effort, s.text)


def _summary(records: Sequence[CollectiveRecord], own: Figures) -> _Tried:
    at: dict[tuple, int] = {}
    axes: dict[tuple, frozenset[str]] = {}
    for r in records:
        at[_key(r)] = at.get(_key(r), 0) + r.total
        axes[_key(r)] = axes.get(_key(r), frozenset()) | frozenset(map(str, r.mesh_axes))
    return _Tried(own, at, axes)


def _key(record: CollectiveRecord) -> tuple:
    return (record.kind, record.source.file, record.source.line)


def _target(change: Change) -> tuple:
    if isinstance(change, Constrain | Respec):
        return ("inside", change.place)
    return (type(change).__name__, change.index)


