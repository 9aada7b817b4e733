"""Ranks the suggestions for a collective: what each saves, less what it costs.

A suggestion is worth the seconds of exchange that it saves; if it computes more in return, at most
the seconds of a step that it saves. Saved computation hardly counts, and not at all where values
are split further, since splitting over more axes always saves some, whatever the mistake was. (If
no argument gets further axes, half of the saved step time counts where that is more, and all of it
for changes of code, which split nothing.) The worth falls if the caller has to exchange instead, if
memory or operations rise by over a tenth, and with each of these irrelevances:

- arguments get axes along dimensions that share a factor with others, most of which these axes do
  not split, or one that splits all of these is put elsewhere in some of them;
- values are split further: over axes other than those of the collective, into more parts, or, where
  they or results get axes, so that less is computed (but not by axes that the argument which the
  collective comes from has on another dimension);
- the collective, or part of it, remains, which weighs more;
- no change concerns what the collective comes from, which weighs less, as does each further change,
  or, if the user requested it, what requested it. A further row of the table of arguments hardly
  weighs anything, since several may be wrong.

As much as is lost where a row is laid out unlike others is gained where arguments only have their
axes on other dimensions, along which these split others, too, and where constraints are only taken
out and nothing rises: they are needless then.

Splitting further is relevant where a mesh axis is idle, everything being computed again along it,
and using it leaves less to exchange than any change that does without it.

Among suggestions of nearly equal worth, the one with least effort comes first, then the one with
fewest arguments. Before all come those that are faster with less effort and raise nothing; some
rows of a table come before more rows, and some arguments in another layout before these and others,
if they save nearly as much, and what concerns the collective and saves nearly all of it before the
same with additions that concern others. If the best one needs no further axes, those that do are
left out. What takes much more memory or operations is not first where another one saves nearly as
much.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .changes import Argument, Change, Constrain, Respec, Result, row_of, rows, tree_of
from .code.changes import Rewritten
from .interleaving.change import Interleave
from .kinds import Kinds
from .suggestion import SOME, Suggestion
from .trials import MUCH, Trials, Tried

_BESIDE = 0.65     # what is left of the worth for each thing that is beside the point
_MORE, _LESS = 3, 0.5           # so many things are those that count for more, and for less
_UNLIKE = 2        # so many is each row that is laid out unlike others
_ROW = 0.2         # of what a further change counts a further row of the table of arguments
_CALLERS = 0.9     # what each second counts less that is saved by exchanges of the caller
_PRICE = 4         # power by which more memory or operations count
_LAID_OUT = 0.5    # what counts of seconds of a step that other layouts save, if that is more
LITTLE = 0.05     # what counts of seconds that are computed less; of a step: what much more memory
#                    or operations have to save at least
SAME = 1e-9        # differences of time below this part are none
EQUAL_WORTH = 0.02       # of two that are worth as much within this part the simpler comes first
_LITTLE_MORE = 1.1       # times the memory, operations or bytes up to which no worth is lost
_LESS_WORK = 1.1  # times the operations that a change leaves: what is padded less does not split
_NEARLY = 0.8      # part of what several rows save from which some of them suffice
_ROW_ADDS = 0.05   # part of what is saved that each further row has to add
_NONE = 0.01       # part of the bytes of a collective that is next to none of them
_KEPT = 8          # suggestions for one collective
_EFFORT = {Constrain: 3, Interleave: 1, Argument: 2, Result: 2}


class Ranking:
    """Ranks suggestions for one collective. own: its share, with equal ones, of the exchanges of
    its kind at its line; seconds: that these take. least: seconds of exchange of the best
    suggestion that needs no further axes; otherwise: those of a step with the best other spec of a
    constraint.
    """

    def __init__(self, trials: Trials, kinds: Kinds, own: float, seconds: float) -> None:
        self.trials, self.kinds, self.own, self.seconds = trials, kinds, own, seconds
        self.least, self.otherwise = 0.0, trials.base.time

    def ranked(self, found: Sequence[Suggestion]) -> list[Suggestion]:
        """The best first."""
        base = self.trials.base.time
        self.least = min([
            s._exchange for s in found if self.cost_factor(s) <= _LITTLE_MORE and not (
                self.kinds.further(s.changes) or self.kinds.splits_over_new(s.changes))],
            default=math.inf)
        self.otherwise = min([s.time for s in found if all(
            isinstance(c, Respec) and c.spec is not None for c in s.changes)], default=base)
        # what takes much more for next to nothing is no suggestion
        left = [(self.worth(s), s) for s in dict.fromkeys(found)
                if self.cost_factor(s) <= MUCH or base - s.time >= base * LITTLE]
        left.sort(key=lambda pair: (-pair[0], self.effort(pair[1])))
        best: list[Suggestion] = []
        while left:
            near = [pair for pair in left if pair[0] >= left[0][0] - abs(left[0][0]) * EQUAL_WORTH]
            first = min(near, key=lambda pair: self.effort(pair[1]))
            for other in left:
                if self.surpasses(other[1], first[1]) or self.suffices(other[1], first[1]):
                    first = other
            best.append(first[1])
            left.remove(first)
        if best and self.is_best(best[0]) and not self.wastes_axes(best[0]):
            best = [s for s in best if not self.wastes_axes(s)]
        if best and self.trials.much(best[0].peak_bytes, best[0].flops):
            near = next((s for s in best if not self.trials.much(s.peak_bytes, s.flops)
                         and self.saves_nearly(s, best[0])), best[0])
            best = [near, *[s for s in best if s is not near]]
        return [replace(s, worth=self.worth(s)) for s in best]

    def surpasses(self, s: Suggestion, other: Suggestion) -> bool:
        """Is it faster with less effort, and takes no more of anything, nor of the caller? It is
        not if the other one does nearly as much by changing fewer arguments.
        """
        return (s.time < other.time * (1 - SAME) and s.received_bytes <= other.received_bytes
                and not self.changes_fewer(other, s)
                and s._callers <= other._callers
                and s.peak_bytes <= other.peak_bytes * SOME and s.flops <= other.flops * SOME
                and self.kinds.count_unlike(s.changes) <= self.kinds.count_unlike(other.changes)
                and self.kinds.agree_more(s.changes) >= self.kinds.agree_more(other.changes)
                and self.effort(s) < self.effort(other))

    def suffices(self, s: Suggestion, other: Suggestion) -> bool:
        """Is it preferable to another one that asks for more? It is if it is the part of the other
        that concerns the collective, and saves nearly all of that, or all that the caller does not
        exchange instead; if its rows are some of the other's, and the rest add next to nothing; if
        it has some rows of the other's arguments, saves nearly as much at no
        higher cost, and the other rows are laid out unlike what they are read with; or if it
        removes a constraint where the other one changes it or adds another, or neither gives
        arguments further axes nor takes all from them, as the other one does, and saves nearly as
        much at no higher cost. It is not if only the other one lays arguments out like others.
        """
        if self.changes_fewer(s, other):
            return True
        if self.kinds.agree_more(s.changes) < self.kinds.agree_more(other.changes):
            return False
        received = self.trials.base.received_bytes
        cheap = self.cost_factor(s) <= max(SOME, self.cost_factor(other))
        if not set(s.changes) < set(other.changes):
            return (cheap and self.saves_nearly(s, other)
                    and received - s.received_bytes >= _NEARLY * (received - other.received_bytes)
                    and (self.undoes(s, other) or _same_targets(s, other)
                         and not self.kinds.further(s.changes)
                         and not self.kinds.gathers(s.changes)
                         and (self.kinds.gathers(other.changes)
                              or bool(self.kinds.further(other.changes))
                              and not self.uses_idle_axes(other))))
        if cheap and (self.undoes(s, other) and self.saves_nearly(s, other)
                      or self.saves_all_but(s, other)):
            return True
        if other._callers > s._callers and self.avoids(s) >= self.avoids(other) and (
                self.saved_of(s) >= self.saved_of(other)):
            return True
        base, rest = self.trials.base, set(other.changes) - set(s.changes)
        if self.kinds.unrelated(s.changes, rest):
            return (self.kinds.any_direct(s.changes) and s._callers < 1
                    and self.cost_factor(s) <= max(_LITTLE_MORE, self.cost_factor(other) * SOME)
                    and base.times.communication - s._exchange > self.seconds * _NEARLY)
        return (self.avoids(s) and all(isinstance(c, Argument) for c in other.changes) and cheap
                and self.kinds.count_unlike(s.changes, 1) < self.kinds.count_unlike(
                    other.changes, 1)
                and self.saves_nearly(s, other))

    def changes_fewer(self, s: Suggestion, other: Suggestion) -> bool:
        """Does it only change arguments, some of what the other one changes, in another way that
        removes the collective, and save what that does but for a little for each row that it leaves
        as it is?
        """
        own, its = ({*map(target, one.changes)} for one in (s, other))
        base = self.trials.base.time
        return (own < its and all(isinstance(c, Argument) for c in s.changes)
                and self.avoids(s) and s._callers <= other._callers
                and self.cost_factor(s) <= max(_LITTLE_MORE, self.cost_factor(other))
                and not self.kinds.count_unlike(s.changes)
                and base - s.time >= (base - other.time) * (1 - _ROW_ADDS * len(its - own)))

    def undoes(self, s: Suggestion, other: Suggestion) -> bool:
        """Does it only take out constraints, where the other one changes these, adds to them, or
        changes more?
        """
        return (all(isinstance(c, Respec) and c.spec is None for c in s.changes)
                and (_same_targets(s, other) or set(s.changes) < set(other.changes)
                     or self.avoids(s) and all(
                         isinstance(c, Constrain | Result) for c in other.changes)))

    def needless(self, s: Suggestion) -> bool:
        """Does it only take out constraints, and nothing rises, nor saves another spec more?"""
        base = self.trials.base.time
        return (all(isinstance(c, Respec) and c.spec is None for c in s.changes)
                and not s._callers and self.cost_factor(s) <= SOME
                and base - s.time > max(base * SAME, (base - self.otherwise) * _NEARLY))

    def saves_nearly(self, s: Suggestion, other: Suggestion) -> bool:
        """Does it save nearly as much of a step?"""
        base = self.trials.base.time
        return base - s.time > (base - other.time) * _NEARLY

    def saves_all_but(self, s: Suggestion, other: Suggestion) -> bool:
        """Does it save what another one saves, of the step and of the bytes, but for a little for
        each row that it changes less, and has the caller exchange no more? Rows of a tree that had
        one layout are one, of which all are to be changed or none.
        """
        base, rest = self.trials.base, [*map(_origin, set(other.changes) - set(s.changes))]
        if {*rest} & {*map(_origin, s.changes)}:
            return False
        left = 1 - _ROW_ADDS * len({*rest})
        return (s._callers <= other._callers and self.wastes_axes(s) <= self.wastes_axes(other)
                and base.time - s.time >= (base.time - other.time) * left
                and base.received_bytes - s.received_bytes
                >= (base.received_bytes - other.received_bytes) * left)

    def saved_of(self, s: Suggestion) -> float:
        """Seconds saved of a step, without the share that the caller exchanges instead."""
        return (self.trials.base.time - s.time) * (1 - s._callers)

    def worth(self, s: Suggestion) -> float:
        """The worth in seconds (see the top of this file)."""
        base = self.trials.base
        gain, saved = base.times.communication - s._exchange, base.time - s.time
        if s.flops > base.flops * SOME:          # exchanges that are bought with operations
            gain = min(gain, saved)
        if not self.wastes_axes(s):
            gain += max(0.0, saved - gain) * LITTLE
        if self.uses_idle_axes(s):
            gain = max(gain, saved)
        if not self.wastes_axes(s) and (
                not self.kinds.splits(s.changes) or self.kinds.joins(s.changes)):
            code = self.needless(s) or all(
                isinstance(c, Rewritten | Interleave) and not getattr(c, "arguments", ())
                for c in s.changes)
            gain = max(gain, saved if code else saved * _LAID_OUT)
        price = max(1.0, self.cost_factor(s) / _LITTLE_MORE)
        return (gain * (1 - _CALLERS * s._callers) * price ** -_PRICE
                * _BESIDE ** self.count_irrelevant(s))

    def share_of_caller(self, changes: Sequence[Change], tried: Tried) -> float:
        """The share of the saved bytes that whoever passes the arguments, or gets the results, has
        to exchange instead.
        """
        base = self.trials.base
        back = self.kinds.fed_back(self.trials.partitioned, tried.partitioned)
        exchanged = self.kinds.gathered(changes) + back
        rows_of = {c for one in changes for c in self.kinds.candidates.whole_row(one)}
        if self.kinds.gathered([*rows_of]) + back <= base.peak_bytes * LITTLE:
            return 0.0                      # not one of many: of those that are little together
        return min(1.0, exchanged / max(exchanged, base.received_bytes - tried.received_bytes))

    def cost_factor(self, s: Suggestion) -> float:
        """By what factor memory, operations or exchanged bytes rise, whichever most; at least 1.
        Where a step is shorter in return since much less is computed, bytes count by what they take
        of it.
        """
        base = self.trials.base
        exchanged = s.received_bytes / max(base.received_bytes, 1)
        if base.time - s.time >= base.time * LITTLE and s.flops * MUCH <= base.flops:
            exchanged = min(exchanged, 1 + (
                s._exchange - base.times.communication) / base.time)
        return max(1.0, s.peak_bytes / base.peak_bytes, s.flops / max(base.flops, 1.0), exchanged)

    def count_irrelevant(self, s: Suggestion) -> float:
        """The irrelevances listed at the top of this file, weighed and added up."""
        stays = 0.0 if self.avoids(s) else min(1.0, s._left)
        found = (self.wastes_axes(s) + _MORE * stays
                 + _UNLIKE * max(self.kinds.count_unlike(s.changes),
                                 self.kinds.disagree_more(s.changes))
                 - _UNLIKE * (self.kinds.agree_more(s.changes) or self.kinds.joins(s.changes)
                              or self.needless(s)))
        if self.fills_idle_axes(s):
            return found
        written = [row[0] for row in rows(s.changes)]
        further = (len(written) - 1) * (
            _ROW if all(isinstance(c, Argument) for c in written) else 1)
        return found + _LESS * (further + (1 + self.kinds.asked) * (
            not self.kinds.any_direct(s.changes)))

    def uses_idle_axes(self, s: Suggestion) -> bool:
        """Does it use mesh axes along which nearly everything is computed repeatedly? That counts
        for arguments of one tree that the collective comes from, and for all that are split along
        what nothing splits, such as the batch, if it removes the collective, raises nothing, and
        leaves less to exchange than any suggestion that needs no further axes.
        """
        axes = self.kinds.further(s.changes)
        trees = {tree_of(c.name) if isinstance(c, Argument) and self.kinds.further([c])
                 else "" for c in s.changes}
        return (bool(axes) and s.flops * self.kinds.tiles(axes) <= (
                    self.trials.base.flops * _LESS_WORK)
                and self.avoids(s) and self.cost_factor(s) <= SOME
                and (len(trees) == 1 and trees != {""} and self.kinds.any_direct(s.changes)
                     or self.kinds.splits_whole(s.changes))
                and s._exchange < self.least * (1 - SAME))

    def fills_idle_axes(self, s: Suggestion) -> bool:
        """Does it use idle axes for all that has a dimension which nothing splits?"""
        return self.kinds.splits_whole(s.changes) and self.uses_idle_axes(s)

    def wastes_axes(self, s: Suggestion) -> bool:
        """Does it split values over further axes, without making full use of them?"""
        return not self.uses_idle_axes(s) and self.splits_more(s)

    def splits_more(self, s: Suggestion) -> bool:
        """Does it split values over further axes?"""
        return self.kinds.splits_over_new(s.changes) or (
            s.flops * _LESS_WORK < self.trials.base.flops
            and self.kinds.adds_axes(s.changes, s._finer))

    def avoids(self, s: Suggestion) -> bool:
        """Does it remove the collective, or nearly, or as much of the exchanges at its line?"""
        return s.removes or s._left <= 1 - self.own * (1 - _NONE)

    def is_best(self, s: Suggestion) -> bool:
        """Does it remove the collective, lower the time, and raise nothing?"""
        return (self.avoids(s) and not s._callers and self.cost_factor(s) <= SOME
                and s.time < self.trials.base.time * (1 - SAME))

    def effort(self, s: Suggestion) -> tuple:
        """The effort of making the change, as a sort key: further axes weigh most, then arguments
        that are held whole, then what is no use of an idle axis for what nothing splits, then how
        much has to be written, and where.
        """
        written = [row[0] for row in rows(s.changes)]
        effort = sum(_EFFORT.get(type(c), 2) if not isinstance(c, Respec)
                     else int(c.spec is not None) for c in written)
        return (self.wastes_axes(s), self.kinds.gathers(s.changes),
                not self.fills_idle_axes(s), effort,
                self.kinds.size(s.changes), s._arguments, s.time, s.received_bytes, s.peak_bytes,
                len(written), s.text)


def without_repeats(found: Sequence[Suggestion]) -> list[Suggestion]:
    """Not two that do the same, nor a pair that does no better than one of its changes, nor a part
    of a row of which an earlier one changes all, nor what is like an earlier one but for taking
    more memory or operations, or for other specs of the same values that are no better in anything.
    What does as an earlier one, written elsewhere, comes after what does something else.
    """
    kept: list[Suggestion] = []
    again: list[Suggestion] = []
    for s in found:
        if not any(set(k.changes) < set(s.changes) or _costs_more(s, k) or _same_values(s, k)
                   or s.text == k.text or _part_of(s, k) for k in (*kept, *again)):
            (again if any(is_equal(s, k) for k in kept) else kept).append(s)
    return [*kept, *again][:_KEPT]


def _part_of(s: Suggestion, other: Suggestion) -> bool:
    """Is it a part of a row that the other one changes as a whole?"""
    changes = set(s.changes)
    return any(changes < set(row) for row in rows(other.changes))


def is_equal(s: Suggestion, other: Suggestion) -> bool:
    """Do two save and cost the same, but for a little?"""
    return all(math.isclose(a, b, rel_tol=EQUAL_WORTH) for a, b in (
        (s.time, other.time), (s.received_bytes, other.received_bytes),
        (s.peak_bytes, other.peak_bytes), (s.flops, other.flops)))


def _same_values(s: Suggestion, other: Suggestion) -> bool:
    """Does it change what the other one changes, and is better in nothing?"""
    return (_same_targets(s, other) and s.time >= other.time
            and s.received_bytes >= other.received_bytes and s.peak_bytes >= other.peak_bytes
            and s.flops >= other.flops)


def _origin(change: Change) -> Any:
    """What arguments of a tree that have one layout share; of other changes, their row."""
    if isinstance(change, Argument):
        return tree_of(change.name), change.was
    return target(change)


def _same_targets(s: Suggestion, other: Suggestion) -> bool:
    """Does it change what the other one changes?"""
    return {*map(target, s.changes)} == {*map(target, other.changes)}


def _costs_more(s: Suggestion, other: Suggestion) -> bool:
    """Does it take more memory or operations than the other one, and is better in nothing?"""
    price, least = (s.peak_bytes, s.flops), (other.peak_bytes, other.flops)
    return (not set(s.changes) < set(other.changes) and price != least
            and s.time >= other.time and s.received_bytes >= other.received_bytes
            and all(a >= b for a, b in zip(price, least, strict=True)))


def target(change: Change) -> tuple:
    """What a change is of: of a row of a table the row, so that no two parts of one are changed."""
    if isinstance(change, Argument | Result):
        return (type(change).__name__, row_of(change.name) or change.index)
    if isinstance(change, Interleave):
        return ("side by side", change.at, change.arguments)
    return ("inside", change.at if isinstance(change, Rewritten) else change.places)
