"""Transitions: how an equation may continue from the layouts of its operands, and at what cost.

The forward pass of the look-ahead for one equation. Input: the layouts in which each operand is
available. Output: a few (cost, strategy, layouts of operands afterwards, layouts of results), the
most promising first. Pure functions, remembered, so that repeated layers cost a dictionary lookup.
"""
from __future__ import annotations

from operator import itemgetter

from .decisions import Decision, Transition
from .layout_costs import LayoutIds, Preference
from .layouts import LayoutTable
from .strategies import Strategy

DEFERRAL_COST = 10 ** 5         # so that a sum is not passed on without a gain
_EMPTY: frozenset[str] = frozenset()

# A strategy from its results on: the cost of bringing pinned results to where they must be, the
# results then, their expected cost, and whether the strategy repeats computation.
_Ending = tuple[int, LayoutIds, int, bool]
_Row = tuple[tuple[LayoutIds, ...], LayoutIds]
# Cost with the expected cost of what follows, cost, strategy, row.
_Found = tuple[int, int, Strategy, _Row]


def transitions(layouts: LayoutTable, decision: Decision, preferences: tuple[Preference, ...],
                repeats: tuple[int, ...], ends: tuple[bool, ...], most: int) -> TransitionTable:
    """The transitions of an equation, by the layouts of its variables (see `TransitionTable`)."""
    key = preferences, repeats, ends, most
    found = decision.transitions.get(key)
    if found is None:
        found = decision.transitions[key] = TransitionTable(layouts, decision, *key)
    return found


class TransitionTable(dict[tuple[LayoutIds, ...], tuple[Transition, ...]]):
    """From the layouts in which the variables of an equation are available to its transitions, the
    most promising first, at most `most`.

    preferences: for each result, what its readers prefer. repeats: for each variable, how often the
    equation runs for one reshard of it; () for once. ends: for each variable, whether this is its
    last reader.
    """

    __slots__ = ("ahead", "endings", "hints", "layouts", "living", "most", "repeats", "decision",
                 "wanted")

    def __init__(self, layouts: LayoutTable, decision: Decision,
                 preferences: tuple[Preference, ...], repeats: tuple[int, ...],
                 ends: tuple[bool, ...], most: int) -> None:
        super().__init__()
        self.layouts, self.decision, self.most = layouts, decision, most
        self.repeats = repeats
        self.living = [i for i, end in enumerate(ends) if not end]
        count = decision.count
        made = list(zip(decision.kinds[count:], decision.homes[count:], preferences, strict=True))
        self.wanted = [[n for n, _ in preference if n >= 0] for preference in preferences]
        self.hints = [(home, *more) for (_, home, _), more in zip(made, self.wanted, strict=True)]
        self.ahead = [layouts.expected[m] for m in made]
        self.endings: dict[Strategy, _Ending] = {}

    def __missing__(self, held: tuple[LayoutIds, ...]) -> tuple[Transition, ...]:
        decision = self.decision
        if decision.info is None:
            found = (self._brought(held),)
        elif decision.needs:
            first = self._brought(held)
            found = tuple([(first[0] + cost, spec, first[2], results)
                           for cost, spec, _, results in self._transitions(decision.at_home, ())])
        else:
            found = self._transitions(held, self.repeats)
        self[held] = found
        return found

    def _brought(self, held: tuple[LayoutIds, ...]) -> Transition:
        """The transition of an equation without strategies: operands in the layouts of their types.
        """
        decision, repeats, moved = self.decision, self.repeats, self.layouts.moved
        cost = 0
        now = []
        for i, (have, kind, need) in enumerate(zip(held, decision.var_kinds, decision.needs,
                                                   strict=True)):
            if need not in have:
                more, have = moved[kind, have][need]
                cost += more // (repeats[i] if repeats else 1)
            now.append(have)
        return cost, None, tuple(now), decision.results

    def _transitions(self, held: tuple[LayoutIds, ...], repeats: tuple[int, ...]
                     ) -> tuple[Transition, ...]:
        """The transitions by the strategies: for each pair of layouts of operands afterwards and
        layouts of results, the cheapest strategy; then the best of these rows.
        """
        decision, endings, layouts = self.decision, self.endings, self.layouts
        places, kinds, sums = decision.places, decision.kinds, decision.sums
        moved = layouts.moved
        hints = [*(held if decision.read is None else [() if p < 0 else held[p] for p in places]),
                 *self.hints]
        sum_sets = [sums] if not (decision.linear and layouts.waiting) else _sum_sets(
            layouts, decision, held)
        out: dict[_Row, _Found] = {}
        moves = [moved[key] for key in zip(decision.var_kinds, held, strict=True)]
        positions, margin = decision.positions, layouts.prices.margin
        shape = 0 if repeats else len(positions)
        for taken in sum_sets:
            for strategy in decision.table.suggested(hints, taken):
                cost = 0
                needs = strategy.needs
                if shape == 1:
                    more, have = moves[0][needs[positions[0]]]
                    cost += more
                    now: tuple[LayoutIds, ...] = (have,)
                elif shape == 2:
                    more, have = moves[0][needs[positions[0]]]
                    rest, other = moves[1][needs[positions[1]]]
                    cost += more + rest
                    now = have, other
                else:
                    now = held
                    for p, need, kind in zip(places, needs, kinds):  # noqa: B905 (speed)
                        if p >= 0 and need not in now[p]:
                            more, have = moved[kind, now[p]][need]
                            cost += more // repeats[p] if repeats else more
                            now = (*now[:p], have, *now[p + 1:])
                if strategy not in endings:
                    endings[strategy] = self._ending(strategy)
                more, results, rest, repeats_work = endings[strategy]
                if repeats_work and cost:
                    cost = (cost + strategy.cost) * margin // 100 - strategy.cost
                cost += strategy.cost + more
                if taken is not sums:
                    cost += DEFERRAL_COST
                row = now, results
                if row not in out or cost < out[row][1]:
                    out[row] = cost + rest, cost, strategy, row
        ranked = [*out.values()]
        if len(ranked) > 1:
            ranked = self._worth_keeping(ranked, held)
        return tuple([(cost, strategy, now, results)
                      for _, cost, strategy, (now, results) in ranked])

    def _ending(self, strategy: Strategy) -> _Ending:
        """What a strategy costs after its equation: pinned results are brought home, of the others
        readers are expected to take the cheapest layout.
        """
        more = rest = k = 0
        results = strategy.results
        decision, costs = self.decision, self.layouts.costs
        for ahead, pinned, n in zip(self.ahead, decision.pinned, results):  # noqa: B905 (speed)
            if n != ahead.home:
                if pinned:
                    more += costs[ahead.kind, n, ahead.home]
                    results = (*results[:k], ahead.home, *results[k + 1:])
                else:
                    rest += ahead[n,]
            elif ahead.preference and not pinned:
                rest += ahead[n,]
            k += 1
        return more, results, rest, decision.repeats(strategy)

    def _worth_keeping(self, found: list[_Found], held: tuple[LayoutIds, ...]) -> list[_Found]:
        """The transitions that may be part of the cheapest plan, the cheapest first."""
        found.sort(key=itemgetter(0))
        _, cost, strategy, (now, results) = found[0]
        if not (now != held or cost > strategy.cost or strategy.received or strategy.pending):
            # It moves nothing: others matter only if a reader prefers their results.
            others = found[1:self.most]
            del found[1:]
            for other in others:
                for n, m, more in zip(other[3][1], results, self.wanted):  # noqa: B905 (speed)
                    if n != m and n in more:
                        found.append(other)
                        break
        return self._undominated(found) if len(found) > 1 else found

    def _undominated(self, found: list[_Found]) -> list[_Found]:
        """The transitions without those that cost as much as resharding from a better one; at most
        `most`.
        """
        layouts, living = self.layouts, self.living
        gaps, costs, kinds = layouts.gaps, layouts.costs, self.decision.var_kinds
        out: list[_Found] = []
        room = self.most
        for o in found:
            cost, (now, results) = o[1], o[3]
            for _, other, _, (operands, others) in out:
                left = cost - other
                if left < 0:
                    continue
                for ahead, have, want in zip(self.ahead, others, results):  # noqa: B905 (speed)
                    if have != want:
                        key = ahead.kind, have, want
                        if key in costs:
                            left -= costs[key]
                        else:
                            left = layouts.left_after(left, *key, ahead.home)
                if left < 0:
                    continue
                for i in living:
                    have, want = operands[i], now[i]
                    if have != want:
                        left -= gaps[kinds[i], have, want]
                if left >= 0:
                    break
            else:
                out.append(o)
                room -= 1
                if not room:
                    break
        return out


def _sum_sets(layouts: LayoutTable, decision: Decision, held: tuple[LayoutIds, ...]
              ) -> list[tuple[frozenset[str], ...]]:
    """The combinations of partial sums as which operands may be taken: those of their types, and
    those that are available.
    """
    sum_sets, table, waiting, some = [decision.sums], layouts.table, layouts.waiting, False
    for have in held:
        for n in have:
            some = some or n in waiting
    if not some:
        return sum_sets
    for members in decision.linear:
        places = [decision.places[i] for i in members]
        if min(places) < 0:
            continue
        for pending in dict.fromkeys([table[n][1] for p in places for n in held[p]]):
            if pending:
                taken = tuple([pending if i in members else _EMPTY
                               for i in range(len(decision.sums))])
                if taken not in sum_sets:
                    sum_sets.append(taken)
    return sum_sets
