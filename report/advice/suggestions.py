"""Searches for changes that avoid a collective: each candidate is partitioned and costed as a
whole.

A change counts if the collective disappears, moves less or takes less time, and the modelled time
of the program falls (or its communication time, if the collective was hidden behind computation);
or if it saves half of the time of the collective elsewhere. It must not receive more bytes, unless
it saves a twentieth of the step. ranking.py orders them. A change that would also alter the
sharding of results is tried with results pinned, too; changes that split values over other axes of
the mesh are tried after those that do not. Then changes are combined: the best with others, one on
top of the other, and pairs of the fastest and of those that exchange least.

A program with repeated blocks, such as unrolled layers, is first tried with a few repetitions
(repetition.py), and only the best change on the whole program. The search is bounded by a budget in
seconds per explanation: each collective gets half of what remains, and a change that helps one is
tried for the others, too. The budget is counted in partitioned equations, so results do not depend
on the machine; the number of candidates left untried is reported. Ctrl-C ends the search with what
it has found.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from ...ir.support.progress import counted
from ...partitioner.collectives import CollectiveRecord
from ...partitioner.cost.figures import Figures
from ...partitioner.cost.topology import Topology
from ..reasons.causes import Cause, whole_axes
from .candidates import Candidates
from .changes import Argument, Change, Result, text_of, tree_of
from .code.shard_map_bodies import Ungather
from .kinds import Kinds
from .pairs import Promising, pairs_of
from .ranking import EQUAL_WORTH, LITTLE, SAME, Ranking, target, without_repeats
from .repetition import PERIODS
from .suggestion import SOME, Found, Suggestion, crossover, in_proportion
from .trials import Budget, Subject, Trials, Tried, costed_parts, key_of, short_trials

SECONDS = 2.0      # seconds for all suggestions of an explanation
SINGLES = 48       # candidates tried for one collective, at most
PAIRS = 24
SHOWN = 3          # suggestions for a collective that are confirmed on the whole program
_ROWS = 16         # fastest changes that are tried on top of each other
_FEW = 4           # fastest changes that come before those that exchange least
_FIRST, _SECOND = 0.5, 0.7      # share of a search's budget for single changes
_ELSEWHERE = 0.5   # share of a remaining collective's seconds that a change must save elsewhere
_GONE = 0.1        # share of removed bytes, or time, that must really be saved
_ALIKE = 0.5       # share of the bytes of a collective that few repetitions have to exchange, too


class Search:
    """Tries changes of one program, each once.

    trials: how many candidates to try for one collective, however long it takes. seconds: for
    everything that is asked of it, if `trials` is not given.
    """

    def __init__(self, subject: Subject, topology: Topology, base: Figures,
                 candidates: Candidates, trials: int | None = None, seconds: float = SECONDS
                 ) -> None:
        self.subject, self.candidates = subject, candidates
        self.budget = Budget(math.inf) if trials else Budget.of(seconds)
        self.most = trials or SINGLES
        self.whole = Trials(subject, topology, base, len(candidates.place), self.budget)
        self.topology = topology
        self._short: dict[tuple[bool, int], Trials | None] = {}
        self.found: dict[tuple, Found] = {}
        self.good: dict[tuple[Change, ...], None] = {}     # one may be good for several collectives

    def short_for(self, record: CollectiveRecord) -> Trials | None:
        """Trials of the program with few repetitions; None if it repeats little, or if the
        collective is in no repetition that is left. One plan is made in each, if the plan made
        first exchanges as much there as that of the whole program.
        """
        key = key_of(record)
        for compared in (False, True):
            short = self.short(compared)
            if short is None:
                break
            left = short.before.at.get(key, 0)
            if left * short.ratio >= self.whole.before.at.get(key, 0) * (0 if compared else _ALIKE):
                return short if left else None
        return None

    def short(self, compared: bool, periods: int = PERIODS) -> Trials | None:
        """Trials of the program with so many repetitions. compared: are several plans made?"""
        key = compared, periods
        if key not in self._short:
            self._short[key] = short_trials(self.whole, self.topology, compared, periods)
        return self._short[key]

    def suggestions(self, record: CollectiveRecord, cause: Cause) -> Found:
        """Changes that avoid one collective, the best first."""
        key = _key(record, cause)
        if key not in self.found:
            self.found[key] = self.searched(record, cause)
        return self.found[key]

    def add(self, s: Suggestion, record: CollectiveRecord, cause: Cause) -> None:
        """Rank a suggestion that was found for another collective among those for this one, if it
        helps this one.
        """
        found, tried = self.suggestions(record, cause), self.whole.known(s.changes)
        one = _One(self, self.whole, record, self.kinds(record, cause), 0)
        again = one.judged(s.changes, tried[0]) if tried and tried[0] is not None else None
        if again is not None and all(s.changes != own.changes for own in found.suggestions):
            ranked = without_repeats(one.ranked([*found.suggestions, again]))
            self.found[_key(record, cause)] = replace(
                found, suggestions=tuple(ranked), turn=crossover(ranked, self.whole))

    def lessened(self, s: Suggestion) -> set[tuple]:
        """The kinds and lines of the collectives of which a suggestion leaves fewer bytes."""
        tried = self.whole.known(s.changes)
        at = tried[0].at if tried and tried[0] is not None else None
        return set() if at is None else {
            key for key, n in self.whole.before.at.items() if at.get(key, 0) < n}

    def kinds(self, record: CollectiveRecord, cause: Cause) -> Kinds:
        return Kinds(self.candidates, cause, frozenset(whole_axes(record.mesh_axes)))

    def searched(self, record: CollectiveRecord, cause: Cause) -> Found:
        """Try the changes that may avoid a collective of this cause, and combine what helps."""
        short = self.short_for(record)
        trials = short or self.whole
        parts = [(c,) for changes in self.good if len(changes) > 1 for c in changes]
        candidates = list(dict.fromkeys([            # one change of several may do here
            *self.good, *filter(trials.known, parts), *self.candidates.of(record, cause)]))
        left = self.budget.left / 2
        known = set(candidates)
        others = [c for c in self.candidates.of(record, cause, others=True) if c not in known]
        kinds = self.kinds(record, cause)
        search = _One(self, trials, record, kinds, left)
        stopped = False
        try:
            search.run(candidates, _FIRST)
            candidates += others
            search.run(others, _SECOND, 0 if math.isinf(self.budget.left) else self.most // 2)
            search.combine()
        except KeyboardInterrupt:
            stopped, self.budget.left = True, 0.0
        found = search.ranked(search.found)
        if short is not None:
            found = self.confirmed(found, search, kinds, short)
        turn = crossover(found, self.whole)
        found = without_repeats(found)
        self.good.update(dict.fromkeys([s.changes for s in found[:SHOWN]]))
        return Found(tuple(found), search.count, len(candidates), stopped, turn)

    def confirmed(self, found: Sequence[Suggestion], search: _One, kinds: Kinds, short: Trials
                  ) -> list[Suggestion]:
        """The best suggestions for the short program, or the fastest changes if there are none, and
        arguments unlike most of their row as these, tried on the whole program if there is time;
        else with figures in proportion.
        """
        whole = _One(self, self.whole, search.record, kinds, 0)
        best: dict[tuple[Change, ...], Suggestion | None] = {
            s.changes: s for s in without_repeats(found)[:SHOWN]}
        if not best:
            best = dict.fromkeys([changes for *_, changes in search.promising[:SHOWN]])
        if odd := self.candidates.as_siblings:      # what one plan of the short one may not show
            best = {odd: None} | best
        for changes, s in best.items():
            tried = self.whole.known(changes)
            if not tried and self.whole.least <= self.budget.left:
                tried = (self.whole.attempt(changes, self.whole.work <= self.budget.left),)
            if tried and tried[0] is not None:
                whole.noted(changes, tried[0])
            elif not tried and s is not None:
                whole.found.append(in_proportion(
                    s, self.whole, short, self.short(short.compared, PERIODS + 1)))
        return whole.ranked(whole.found)


class _One(Ranking):
    """The search for changes that avoid one collective. left: the budget at which it ends."""

    def __init__(self, search: Search, trials: Trials, record: CollectiveRecord, kinds: Kinds,
                 left: float) -> None:
        self.search, self.record, self.left = search, record, left
        same = [(r, seconds) for r, seconds in costed_parts(
            trials.partitioned.local, search.topology)
                if key_of(r) == key_of(record) and r.received_bytes == record.received_bytes]
        super().__init__(trials, kinds, sum(r.total for r, _ in same) / max(
            1, trials.before.at.get(key_of(record), 0)) if same else 1.0,
            sum(seconds * r.count for r, seconds in same))
        self.found: list[Suggestion] = []
        self.count = 0
        self.start = search.budget.left
        self.promising: list[Promising] = []        # those that make a difference
        self.moved: list[tuple[tuple[Change, ...], Tried]] = []     # may change result layouts

    @property
    def affordable(self) -> bool:
        budget = self.search.budget
        return budget.left > 0 and budget.left >= self.left

    def room(self, part: float = 1.0) -> bool:
        """Is there budget left within this share of the search's?"""
        left = self.search.budget.left
        return self.affordable and (
            math.isinf(left) or left >= self.start - part * (self.start - self.left))

    def run(self, candidates: Sequence[tuple[Change, ...]], part: float, more: int = 0) -> None:
        """Try single changes, in this order, within this share of the budget. more: how many to try
        beyond the most for one collective.
        """
        record = self.record
        # changes tried for another collective cost nothing
        singles = sorted(candidates, key=lambda c: not self.trials.known(c))
        for changes in counted(singles[:self.search.most + more - self.count],
                               f"changes tried for {record.kind} of {record.source}"):
            if not self.room(part) and not self.trials.known(changes):
                return
            tried = self.trials.attempt(changes)
            self.count += 1
            if tried is None:
                continue
            good = self.noted(changes, tried)
            if self.differs(tried) and self.in_rows(changes):
                times = tried.figures.times
                self.promising.append((times.communication, times.step, changes))
            if good is None or not self.is_best(good):
                self.moved.append((changes, tried))

    def in_rows(self, changes: tuple[Change, ...]) -> bool:
        """Do they cover all values that are like the changed ones?"""
        known, seen = {*changes}, set[Change]()
        for c in changes:
            if c not in seen:                   # of a row, each is like all the others
                row = self.search.candidates.whole_row(c)
                if c not in row or not known.issuperset(row):
                    return False
                seen.update(row)
        return True

    def combine(self) -> None:
        """Try changes with the results kept as they are, and several changes together."""
        record, promising = self.record, self.promising
        promising.sort(key=lambda p: p[1])
        if self.search.most >= SINGLES:
            base = self.trials.base.time * (1 - SAME)
            rows_of = [c for _, step, c in promising if step < base or isinstance(c[0], Argument)]
            self.together(sorted(rows_of, key=lambda c: (
                self.kinds.splits_over_new(c), not isinstance(c[0], Argument)))[:_ROWS])
            self.fewer()
        for s in self.ranked(self.found)[:_FEW]:
            self.moved += [(s.changes, tried) for tried in self.trials.known(s.changes) if tried]
        for changes, tried in dict(self.moved).items():
            self.kept(changes, tried)
        if self.search.most < SINGLES:
            return
        if any(map(self.is_best, self.found)):
            promising[_FEW:] = sorted(promising[_FEW:], key=lambda p: p[:2])
        else:
            promising.sort(key=lambda p: p[:2])
        text = f"pairs of changes tried for {record.kind} of {record.source}"
        for pair in counted(list(itertools.islice(pairs_of(promising, self.trials), PAIRS)), text):
            if self.room():
                tried = self.trials.attempt(pair)
                if tried is not None and self.noted(pair, tried) is None:
                    self.kept(pair, tried)

    def together(self, changed: Sequence[tuple[Change, ...]]) -> None:
        """Add to the best suggestion, one after the other, those changes that make a step still
        faster, the fastest first: several rows may be wrong, and correcting one alone may not help.
        None may raise memory or operations further.
        """
        best = next(iter(self.ranked(self.found)), None)
        for changes in changed:
            if best is None or not self.room():
                return
            if set(map(target, changes)) & set(map(target, best.changes)):
                continue
            more = (*best.changes, *changes)
            tried = self.trials.attempt(more)
            good = None if tried is None else self.judged(more, tried)
            if good is not None and good.time < best.time * (1 - EQUAL_WORTH) and (
                    self.cost_factor(good) <= max(SOME, self.cost_factor(best))):
                self.found.append(good)
                best = good

    def fewer(self) -> None:
        """Leave out of the best suggestion, one after the other, arguments without which it saves
        next to as much: each row that is changed is work. Rows of a tree that had one layout stay
        together, as they were wrong together.
        """
        best = next(iter(self.ranked(self.found)), None)
        groups: dict[tuple[str, str], set[Change]] = {}
        for c in best.changes if best is not None else ():
            if isinstance(c, Argument):
                groups.setdefault((tree_of(c.name), c.was), set()).add(c)
        for group in reversed(groups.values()):
            left = tuple([c for c in best.changes if c not in group]) if best is not None else ()
            if best is None or not left or not self.room():
                return
            tried = self.trials.attempt(left)
            good = None if tried is None else self.judged(left, tried)
            if good is not None and self.saves_all_but(good, best):
                self.found.append(good)
                best = good

    def kept(self, changes: tuple[Change, ...], tried: Tried) -> None:
        """Try changes that alter layouts of results again, with these as they were."""
        asked = {c.index for c in changes if isinstance(c, Result)}
        kept = tuple(c for c in self.search.candidates.unchanged_results(
            self.trials.results, self.trials.partitioned, tried.partitioned)
            if c.index not in asked)
        if kept and (self.room() or self.trials.known((*changes, *kept))):
            again = self.trials.attempt((*changes, *kept))
            if again is not None:
                self.noted((*changes, *kept), again)

    def noted(self, changes: tuple[Change, ...], tried: Tried) -> Suggestion | None:
        good = self.judged(changes, tried)
        if good is not None:
            self.found.append(good)
        return good

    def differs(self, tried: Tried) -> bool:
        """Does it change the collective, or what the program moves?"""
        key, base = key_of(self.record), self.trials.base
        return (tried.received_bytes, tried.at.get(key)) != (
            base.received_bytes, self.trials.before.at.get(key)) or tried.figures.time != base.time

    def judged(self, changes: Sequence[Change], tried: Tried) -> Suggestion | None:
        """What changes are worth to the collective, by the plan with them; None if nothing."""
        base, record = self.trials.base, self.record
        key = key_of(record)
        axes = frozenset(map(str, record.mesh_axes))
        left = tried.at.get(key, 0)
        removes = not left or not (axes & tried.axes.get(key, frozenset()))
        new = tried.figures
        before, topology = self.trials.before, self.search.topology
        if not removes and left >= before.at.get(key, 0) and (
                self.saved_by_less(tried) < self.seconds * _ELSEWHERE
                and tried.seconds(key, topology) >= before.seconds(key, topology) * (1 - SAME)):
            return None          # and it takes no less time, nor saves much elsewhere
        if tried.received_bytes > base.received_bytes * SOME and (
                base.time - new.time < base.time * LITTLE):
            return None          # more bytes must save time, as they can where latency counts
        hidden = new.time <= base.time * (1 + SAME) and (
            new.times.communication < base.times.communication * (1 - SAME))
        faster = new.time < base.time * (1 - SAME)
        if not (faster or hidden) or self.elsewhere(changes, tried, left):
            return None
        return Suggestion(text_of(changes), new.received_bytes, new.time, new.peak_bytes, new.flops,
                          removes, tuple(changes), self.search.subject, False,
                          self.trials.latency_of(tried),
                          left / max(1, self.trials.before.at.get(key, 0)),
                          new.memory.argument_bytes, self.kinds.finer(
                              changes, self.trials.partitioned.out_specs,
                              tried.partitioned.out_specs),
                          self.share_of_caller(changes, tried),
                          new.times.communication)

    def elsewhere(self, changes: Sequence[Change], tried: Tried, left: int) -> bool:
        """Are the bytes only received at another line, no fewer of them, and in no less time? The
        time of whoever passes whole what a body gathered is no saving.
        """
        base, before = self.trials.base, self.trials.before
        key = key_of(self.record)
        bytes_now = max(1, before.at.get(key, 0))
        gone, seconds = bytes_now - left, before.seconds(key, self.search.topology)
        whole = any(isinstance(c, Ungather) for c in changes)
        passed = self.kinds.gathered(changes) if whole else 0.0
        if base.received_bytes - tried.received_bytes - passed > _GONE * gone:
            return False
        return whole or self.saved_by_less(tried) <= _GONE * gone / bytes_now * seconds

    def saved_by_less(self, tried: Tried) -> float:
        """The seconds of a step that are saved because less is exchanged or computed, rather than
        because another order lets more of it overlap.
        """
        was, now = self.trials.base.times, tried.figures.times
        saved = max(was.communication - now.communication, was.compute - now.compute)
        return min(saved, self.trials.base.time - tried.figures.time)


def _key(record: CollectiveRecord, cause: Cause) -> tuple:
    """Equal for collectives that the same changes avoid."""
    return key_of(record), record.mesh_axes, cause.text
