"""A suggestion, and the result of a search for suggestions, as data."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .changes import Change
from .line_diffs import line_diffs
from .trials import Subject, Trials

SOME = 1.01         # times the memory or operations that count as raising them
_LARGEST = 1000     # factor of the data up to which a turn of the ranking is mentioned


@dataclass(frozen=True)
class Suggestion:
    """A change that avoids a collective, and the whole program's figures after it.

    removes: no collective of its kind over its axes is left at its line (else it moves less).
    received_bytes, peak_bytes: of one device; time: seconds of a step; flops: operations of one
    device. estimated: these are not of the whole program with the change, which there was no time
    for, but reckoned from fewer repetitions of what it repeats. latency: seconds that its exchanges
    would take without a byte.
    """
    text: str
    received_bytes: int
    time: float
    peak_bytes: int
    flops: float
    removes: bool
    changes: tuple[Change, ...]
    _subject: Subject = field(repr=False, compare=False)
    estimated: bool = False
    latency: float = field(default=0.0, repr=False, compare=False)
    _left: float = field(default=0.0, repr=False, compare=False)     # share of its bytes left
    _arguments: int = field(default=0, repr=False, compare=False)    # bytes of a device
    _finer: bool = field(default=False, repr=False, compare=False)   # are results in more parts?
    _callers: float = field(default=0.0, repr=False, compare=False)  # share that callers exchange
    _exchange: float = field(default=0.0, repr=False, compare=False)     # seconds of exchanges
    worth: float = field(default=0.0, repr=False, compare=False)     # seconds (ranking.py)

    @property
    def lessens(self) -> bool:
        """Does the collective move less, if it remains? Otherwise the time is saved elsewhere."""
        return self._left < 1

    @property
    def diff(self) -> tuple[tuple[str, str], ...]:
        """(line now, line then) for the lines of the user's code that it changes."""
        return tuple(line_diffs(self.changes))

    def apply(self) -> Any:
        """The function with the change made; it brings arguments to their new shardings."""
        return self._subject.apply(self.changes)

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "removes": self.removes, "received_bytes": self.received_bytes,
                "time": self.time, "peak_bytes": self.peak_bytes, "flops": self.flops,
                "estimated": self.estimated}

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Found:
    """The result of the search for one collective.

    tried, candidates: numbers of single changes. stopped: the user interrupted it. turn: the factor
    of the data from which another suggestion is better than the first (None: than the program as it
    is), since latency counts for less there.
    """
    suggestions: tuple[Suggestion, ...]
    tried: int
    candidates: int
    stopped: bool = False
    turn: tuple[float, Suggestion | None] | None = None


def in_proportion(s: Suggestion, whole: Trials, short: Trials, longer: Trials | None
                  ) -> Suggestion:
    """A suggestion for a short program with figures for the whole one: bytes and operations with
    those that one more repetition adds (`longer` has one more) for each that is left out; times, of
    which some overlap, in the ratio of those with and without the change.
    """
    (few,) = short.known(s.changes)
    more = longer.attempt(s.changes) if longer is not None else None
    assert few is not None
    last, tried = (longer, more) if longer is not None and more is not None else (short, few)

    def scaled(whole: float, was: float, now: float) -> float:
        return whole * now / was if was else whole

    def added(name: str) -> Any:
        full, was, once_more, now, then = [getattr(figures, name) for figures in (
            whole.base, short.base, last.base, few.figures, tried.figures)]
        found = scaled(full, was, now) if tried is few else (
            full + now - was + (then - now - (once_more - was)) * short.gone)
        return type(full)(max(0, found))

    times = tried.figures.times
    return replace(
        s, **{name: added(name) for name in ("received_bytes", "peak_bytes", "flops")},
        time=scaled(whole.base.time, last.base.time, times.step), estimated=True,
        latency=scaled(whole.latency, last.latency, last.latency_of(tried)),
        _exchange=scaled(whole.base.times.communication,
                         last.base.times.communication, times.communication))


def crossover(found: Sequence[Suggestion], trials: Trials
              ) -> tuple[float, Suggestion | None] | None:
    """The factor of the data from which the first suggestion is no longer the best, and what is
    better then (None: the program as it is). trials: of the whole program.
    """
    if not found:
        return None
    first, *others = found
    base = trials.base
    rivals: list[tuple[float, float, Suggestion | None]] = [
        (s.time, s.latency, s) for s in others
        if s.removes and not trials.much(s.peak_bytes, s.flops) and (
            s.received_bytes < first.received_bytes or s.flops * SOME < first.flops)]
    if base.flops * SOME < first.flops or base.received_bytes * SOME < first.received_bytes:
        rivals.append((base.time, trials.latency, None))
    turns = [(k, s) for time, latency, s in rivals
             if (k := _overtakes(first, time, latency)) is not None]
    return min(turns, key=lambda t: t[0], default=None)


def _overtakes(first: Suggestion, time: float, latency: float) -> float | None:
    """The factor of the data at which another suggestion, slower at this size, becomes as fast as
    the first; None if it does not within reach. time, latency: of the other.
    """
    steeper = (first.time - first.latency) - (time - latency)
    if time <= first.time or steeper <= 0:
        return None
    times = (latency - first.latency) / steeper
    return times if 1 < times <= _LARGEST else None
