"""Comparisons: was an exchange requested, needed or chosen, and what was the alternative?

*Requested*: the equation has a strategy without an exchange, and only the sharding that the user
wrote for its result needs one. *Needed*: no strategy avoids it. *Chosen*: some strategy avoids it
but costs more; the reason names the cheapest of these with its cost, in the unit by which plans are
judged (cost/prices.py).
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...ir import reasons as say
from ...ir.reasons import ASKED, CHOSEN, NEEDED, Alternative, Clause, operand
from ...ir.support.named_tuple import NamedTuple
from ..cost.prices import Prices
from .costs import Pending
from .decisions import Decision
from .layout_costs import LayoutIds
from .layouts import LayoutTable
from .strategies import Strategy

_EMPTY: Pending = frozenset()


class CostedStrategy(NamedTuple):
    """One strategy of an equation, with its cost in context.

    cost: including the reshards of operands to it, and of results to where they are wanted. moved:
    variables that need an exchange other than finishing a sum in place. after: results that do.
    summed: axes over which it leaves partial sums of its own. exchanges_inside: whether its blocks
    exchange something.
    """
    strategy: Strategy
    cost: int
    moved: tuple[int, ...]
    after: tuple[int, ...]
    summed: Pending
    exchanges_inside: bool

    @property
    def ends(self) -> bool:
        """Does it exchange nothing, except that operands and results may be moved?"""
        return not (self.summed or self.exchanges_inside)

    @property
    def moves_nothing(self) -> bool:
        """Does it exchange nothing before its results?"""
        return self.ends and not self.moved


class Comparison:
    """The strategies that one equation had.

    decision, taken: of the equation, and the row of the strategy taken. held: the layouts in which
    its variables were available. ends: the layouts in which its results are wanted.
    """

    __slots__ = ("held", "layouts", "rows", "taken", "decision")

    def __init__(self, layouts: LayoutTable, decision: Decision, taken: Strategy,
                 held: tuple[LayoutIds, ...], ends: LayoutIds) -> None:
        self.layouts, self.decision, self.held = layouts, decision, held
        strategies = dict.fromkeys(_strategies(layouts, decision, taken, held, ends))
        self.rows = [self._costed(o, ends) for o in strategies]
        self.taken = next(r for r in self.rows if r.strategy is taken)

    def _costed(self, strategy: Strategy, ends: LayoutIds) -> CostedStrategy:
        """The cost of a strategy in context: of its own, and of the exchanges that bring operands
        to it and results to `ends`.
        """
        decision, layouts = self.decision, self.layouts
        cost, moved, after = strategy.cost, (), ()
        for p, need in dict.fromkeys(zip(decision.places, strategy.needs, strict=False)):
            if p >= 0:
                more = layouts.moved[decision.var_kinds[p], self.held[p]][need][0]
                cost += more
                if more > self._finishing(p, need) and p not in moved:
                    moved += (p,)
        for k, (made, end) in enumerate(zip(strategy.results, ends, strict=True)):
            more = layouts.costs[decision.kinds[decision.count + k], made, end]
            cost += more
            if more:
                after += (k,)
        summed = strategy.pending.difference(*strategy.sums)
        return CostedStrategy(strategy, cost, moved, after, summed, strategy.received > 0)

    def _finishing(self, p: int, need: int) -> int:
        """The cost of finishing the sum that variable p is, in place, if it must be finished."""
        layouts, held = self.layouts, self.held[p]
        entries, pending = layouts.table[held[0]]
        if not pending or layouts.table[need][1]:
            return 0
        there = layouts.numbers[entries, _EMPTY]
        return layouts.moved[self.decision.var_kinds[p], held][there][0]

    # -- verdicts --------------------------------------------------------------------------------

    def of_operand(self, p: int, asked: bool) -> tuple[str, CostedStrategy | None]:
        """(kind of reason, best strategy without it) for moving variable p. asked: whether the user
        said how a result is laid out.
        """
        if asked and self.only_ends:
            return ASKED, None
        stay = [r for r in self.rows if p not in r.moved]
        return (CHOSEN, _cheapest(stay)) if stay else (NEEDED, None)

    def of_sum(self) -> tuple[str, CostedStrategy | None]:
        """(kind of reason, best strategy without it) for an exchange that ends the equation: of
        partial sums, or between blocks.
        """
        in_place = [r for r in self.rows if not r.moved]
        without = [r for r in self.rows if r.ends]
        if not without or (in_place and not any([r.ends for r in in_place])):
            return NEEDED, None
        return CHOSEN, _cheapest(without)

    def of_result(self, k: int, asked: bool) -> tuple[str, CostedStrategy | None]:
        """(kind of reason, best strategy without it) for moving result k, which leaves its equation
        in another layout than it is wanted in.
        """
        if asked and self.only_ends:
            return ASKED, None
        without = [r for r in self.rows if k not in r.after]
        if without:
            return CHOSEN, _cheapest(without)
        return (ASKED if asked else NEEDED), None

    @property
    def only_ends(self) -> bool:
        """Is nothing exchanged except to bring results to where they are wanted?"""
        free = [r for r in self.rows if r.moves_nothing]
        return bool(free) and all([r.after for r in free])

    # -- words -----------------------------------------------------------------------------------

    def alternative(self, row: CostedStrategy, others: int = 0, taken: int = 0) -> Alternative:
        """A row as the alternative. others, taken: what other equations that share the move cost
        with it, and cost now.
        """
        return alternative(self._clauses(row), row.cost + others, self.taken.cost + taken,
                           self.layouts.prices)

    def cost_of(self, p: int) -> int:
        """The cost of bringing variable p to the layout in which it is taken."""
        decision = self.decision
        need = self.taken.strategy.needs[decision.places.index(p)]
        return self.layouts.moved[decision.var_kinds[p], self.held[p]][need][0]

    def _clauses(self, row: CostedStrategy) -> Iterator[Clause]:
        """What a strategy that was not taken would do, in clauses: the exchanges before, inside and
        after it, and the work that devices would repeat.
        """
        decision, table = self.decision, self.layouts.table
        spelled, strategy = self._spelled, row.strategy
        for p in row.moved:
            i = decision.places.index(p)
            yield say.BRINGING(operand(i), spelled(table[strategy.needs[i]][0]))
        passed = {a for sums in strategy.sums for a in sums}
        if passed - {a for sums in self.taken.strategy.sums for a in sums}:
            yield say.PASSING_ON(spelled.names(passed))
        if row.exchanges_inside:
            yield say.EXCHANGING()
        if row.summed:
            yield say.SUMMING(say.RESULT, spelled.names(row.summed))
        elif row.after:
            (k, *_) = row.after
            yield say.MOVING(say.result(k, len(strategy.results)),
                             spelled(table[strategy.results[k]][0]))
        mine = {a for axes in self.taken.strategy.candidate.axes_of.values() for a in axes}
        own = {a for axes in strategy.candidate.axes_of.values() for a in axes}
        if mine - own and decision.repeats(strategy):
            yield say.REPEATING(spelled.names(mine - own))
        elif not (row.moved or passed or row.exchanges_inside or row.summed or row.after):
            yield say.NO_EXCHANGE()

    @property
    def _spelled(self) -> _Spelling:
        return _Spelling(self.layouts)


class _Spelling:
    """Spells layouts and axes with the program's own axis names."""

    def __init__(self, layouts: LayoutTable) -> None:
        self.layouts = layouts

    def names(self, axes: Iterable[str]) -> str:
        return ", ".join(map(str, self._own(self.layouts.mesh.sort_axes(axes))))

    def __call__(self, entries: Sequence[Sequence[str]]) -> str:
        return spelled([self._own(axes) for axes in entries])

    def _own(self, axes: Iterable[str]) -> Sequence[str]:
        joint, axes = self.layouts.joint, tuple(axes)
        try:
            return axes if joint is None else joint.spelled(axes)
        except ValueError:              # a part of a joint axis that its axes do not have
            return axes


def alternative(steps: Iterable[Clause], price: int, taken: int, prices: Prices) -> Alternative:
    """What these steps cost instead. price, taken: of the alternative and of the chosen plan, in
    units of `prices`.
    """
    cost = round(price / prices.scale)
    return Alternative(tuple(steps), cost, cost - round(taken / prices.scale), prices.unit)


def spelled(entries: Sequence[Sequence[str]]) -> str:
    """The entries as the user would write them: P('X', None)."""
    words = []
    for axes in entries:
        names = [repr(str(a)) for a in axes]
        words.append("None" if not names else names[0] if len(names) == 1
                     else f"({', '.join(names)})")
    while words and words[-1] == "None":
        words.pop()
    return f"P({', '.join(words)})"


def _cheapest(rows: Sequence[CostedStrategy]) -> CostedStrategy:
    return min(rows, key=lambda r: r.cost)


def _strategies(layouts: LayoutTable, decision: Decision, taken: Strategy,
                held: tuple[LayoutIds, ...], ends: LayoutIds) -> Iterator[Strategy]:
    """The strategy taken, those suggested by the layouts in play, and for each operand one that
    leaves it in place.
    """
    table = decision.table
    candidates = table.candidates
    yield taken
    hints = [*[() if p < 0 else held[p] for p in decision.places],
             *[(home, end) for home, end in zip(decision.results, ends, strict=True)]]
    for sums in dict.fromkeys((decision.sums, taken.sums)):
        yield from table.suggested(hints, sums)
    for i, (p, m) in enumerate(zip(decision.places, table.maps, strict=False)):
        for n in held[p] if p >= 0 and m >= 0 else ():
            pairs, overflow = candidates.part(m, n)
            if overflow or not all([candidates.can_split >> f & 1 for f, _ in pairs]):
                continue
            strategy = table.strategy(candidates.candidate(dict(pairs)), decision.sums)
            if strategy is not None and strategy.needs[i] == n:
                yield strategy
