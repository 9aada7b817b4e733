"""Comparisons: was an exchange requested, needed or chosen, and what was the alternative?

*Requested*: the equation has a strategy without an exchange, and only the sharding that the user
wrote for its result needs one. *Needed*: no strategy avoids it. *Chosen*: some strategy avoids it
but costs more; the reason names the cheapest of these with its cost, in the unit by which plans are
judged (cost/prices.py).
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...ir.support.lazy import lazy_pattern
from ...ir.support.named_tuple import NamedTuple
from ..cost.prices import Prices
from .costs import Pending
from .decisions import Decision
from .layouts import LayoutIds, LayoutTable
from .strategies import Strategy

_EMPTY: Pending = frozenset()
ASKED, NEEDED, CHOSEN = "asked", "needed", "chosen"


class Alternative(NamedTuple):
    """The best plan without an exchange.

    text: what it does. price: of the part that differs, in the unit by which plans are judged
    (cost/prices.py). saved: how much of that the chosen plan saves; negative if it pays off only
    later. unit: "ns" or "B".
    """
    text: str
    price: int
    saved: int
    unit: str = "ns"

    @classmethod
    def of(cls, text: str, price: int, taken: int, prices: Prices) -> Alternative:
        """price, taken: of the alternative and of the chosen plan, in units of `prices`."""
        cost = round(price / prices.scale)
        return cls(text, cost, cost - round(taken / prices.scale), prices.unit)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        if self.unit == "B":
            return {"text": self.text, "bytes": self.price, "saved_bytes": self.saved}
        return {"text": self.text, "seconds": self.price / 1e9, "saved_seconds": self.saved / 1e9}

    def __str__(self) -> str:
        if self.saved > 0:
            return f"cheaper than {self.text} by {self.saved:,} of {self.price:,} {self.unit}"
        if self.saved < 0:
            return (f"better for what follows than {self.text}, which costs {self.price:,} "
                    f"{self.unit} here, not {self.price - self.saved:,} {self.unit}")
        return f"no dearer than {self.text}: {self.price:,} {self.unit} either way"


_ALTERNATIVE = lazy_pattern(r", (?:no dearer than (.+?): ([\d,]+) (B|ns) either way|"
                          r"cheaper than (.+?) by ([\d,]+) of ([\d,]+) (B|ns)|"
                          r"better for what follows than (.+?), which costs ([\d,]+) (B|ns) here, "
                          r"not ([\d,]+) (?:B|ns))")
_ASKED = lazy_pattern(r" asks for | asked for\b| takes operand \d+ as | wants its operands so|"
                    r"^out_specs claim| says that result |` is written here$")
_PLACE = lazy_pattern(r", (?:as asked for|asked for here|asked for at \S+:\d+:\d+)(?=;|$)")
# remarks on an exchange, other than its reason
_REMARK = lazy_pattern(r"^(?:the same in every iteration of|finished once for all|and \d+ more$|"
                     r"and more$|one device sends )| the finished sum |"
                     r"^\d+ of \d+ rows of dimension \d+ count$|"
                     r"^dimension \d+ of `[^`]*` has \d+ rows, padded to \d+$")
_OF_A_SUM = lazy_pattern(r" leaves partial | finished sum | the sum that ")


def parse_alternative(clause: str) -> Alternative | None:
    """The alternative that a reason names."""
    found = _ALTERNATIVE.search(clause)
    if found is None:
        return None
    if found[1]:
        return Alternative(found[1], _number(found[2]), 0, found[3])
    if found[4]:
        return Alternative(found[4], _number(found[6]), _number(found[5]), found[7])
    return Alternative(found[8], _number(found[9]), _number(found[9]) - _number(found[11]),
                       found[10])


def without_alternative(reason: str) -> str:
    """The reason without the alternative, and without the line of the user's request."""
    return _PLACE.sub("", _ALTERNATIVE.sub("", reason))


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def kind_of(clause: str) -> str:
    """The kind of one reason; without any, the user wrote the exchange."""
    if not clause or _ASKED.search(clause):
        return ASKED
    return CHOSEN if _ALTERNATIVE.search(clause) else NEEDED


def kind_of_reason(reason: str, sums: bool | None = None) -> tuple[str, Alternative | None]:
    """The kind of an exchange with these reasons, and the alternative if it was chosen.

    Of several reasons the one that would keep the exchange alone decides: "needed" first, then
    "asked". sums: whether the exchange adds up; if only some of the reasons are about a sum, only
    those that fit are considered.
    """
    every = reason.split("; ")
    clauses = [c for c in every if not _REMARK.search(c)] or every
    if sums is not None:
        clauses = [c for c in clauses if bool(_OF_A_SUM.search(c)) == sums] or clauses
    kinds = [kind_of(c) for c in clauses]
    for kind in (NEEDED, ASKED):
        if kind in kinds:
            return kind, None
    found = [a for a in map(parse_alternative, clauses) if a is not None]
    return CHOSEN, found[0]


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
    def stays(self) -> bool:
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
        self.rows = [self._row(o, ends) for o in strategies]
        self.taken = next(r for r in self.rows if r.strategy is taken)

    def _row(self, strategy: Strategy, ends: LayoutIds) -> CostedStrategy:
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
        free = [r for r in self.rows if r.stays]
        return bool(free) and all([r.after for r in free])

    # -- words -----------------------------------------------------------------------------------

    def alternative(self, row: CostedStrategy, rest: int = 0) -> Alternative:
        """A row as the alternative. rest: what else would have to be paid with it."""
        return Alternative.of(" and ".join(self._words(row)), row.cost + rest, self.taken.cost,
                              self.layouts.prices)

    def cost_of(self, p: int) -> int:
        """The cost of bringing variable p to the layout in which it is taken."""
        decision = self.decision
        need = self.taken.strategy.needs[decision.places.index(p)]
        return self.layouts.moved[decision.var_kinds[p], self.held[p]][need][0]

    def _words(self, row: CostedStrategy) -> Iterator[str]:
        decision, table = self.decision, self.layouts.table
        spelled, strategy = self._spelled, row.strategy
        for p in row.moved:
            i = decision.places.index(p)
            yield f"bringing operand {i} to {spelled(table[strategy.needs[i]][0])}"
        passed = {a for sums in strategy.sums for a in sums}
        if passed - {a for sums in self.taken.strategy.sums for a in sums}:
            yield f"passing on the sum over {', '.join(spelled.names(passed))}"
        if row.exchanges_inside:
            yield "exchanging blocks"
        if row.summed:
            yield f"summing its result over {', '.join(spelled.names(row.summed))}"
        elif row.after:
            (k, *_) = row.after
            which = "its result" if len(strategy.results) == 1 else f"its result {k}"
            yield f"moving {which} from {spelled(table[strategy.results[k]][0])}"
        mine = {a for axes in self.taken.strategy.candidate.axes_of.values() for a in axes}
        own = {a for axes in strategy.candidate.axes_of.values() for a in axes}
        if mine - own and decision.repeats(strategy):
            yield f"computing it alike over {', '.join(spelled.names(mine - own))}"
        elif not (row.moved or passed or row.exchanges_inside or row.summed or row.after):
            yield "no exchange at all"

    @property
    def _spelled(self) -> _Spelling:
        return _Spelling(self.layouts)


class _Spelling:
    """Spells layouts and axes with the program's own axis names."""

    def __init__(self, layouts: LayoutTable) -> None:
        self.layouts = layouts

    def names(self, axes: Iterable[str]) -> list[str]:
        return list(map(str, self._own(self.layouts.mesh.sort_axes(axes))))

    def __call__(self, entries: Sequence[Sequence[str]]) -> str:
        return spelled([self._own(axes) for axes in entries])

    def _own(self, axes: Iterable[str]) -> Sequence[str]:
        joint, axes = self.layouts.joint, tuple(axes)
        try:
            return axes if joint is None else joint.spelled(axes)
        except ValueError:              # a part of a joint axis that its axes do not have
            return axes


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
