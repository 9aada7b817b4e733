"""Clusters: values whose layouts must be decided together, and how an equation transforms them.

A *cluster* is a table with a row for each assignment of layouts to its values, and the cost of the
program so far above that of the cheapest row. Values in different clusters are independent. An
equation joins the clusters that it reads, adds its results, and eliminates values that nothing
reads any more. Dominated rows are dropped: those that cost as much as resharding from a cheaper
row. A value on which all rows agree is decided.

Tables are interned and do not name their variables, so that the step over an equation is computed
once for repeated layers. This is variable elimination in graphical models (Dechter, "Bucket
elimination", 1999).
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from ...ir.support.named_tuple import NamedTuple
from .decisions import Decision
from .layout_costs import ExpectedCost, LayoutIds, Preference
from .layouts import LayoutTable
from .strategies import Strategy
from .transitions import transitions

Row = tuple[LayoutIds, ...]


class SearchBudget(NamedTuple):
    """How wide the search is.

    limits: how many rows to keep, ranked by cost plus the whole expected cost, and by cost plus
    half of it; each taken from the best `compared`. transitions: of one equation for
    each row. merged: rows of merged clusters. all_preferences: also try layouts that readers prefer
    without a gain over resharding back. doubt: by how many quarters an expected cost may be wrong;
    rows that are more expensive even so are dropped, none if 0.
    """
    limits: tuple[int, int]
    compared: int
    transitions: int
    merged: int
    all_preferences: bool
    doubt: int


_WEIGHTS = (2, 1)            # halves of the expected cost
_WIDEST = 24                    # values in a cluster, at most


class ClusterTable:
    """The rows of a cluster. values: the expected cost of each value. costs: of each row, above
    that of the first.
    """

    __slots__ = ("costs", "rows", "values")

    def __init__(self, values: tuple[ExpectedCost, ...], rows: tuple[Row, ...],
                 costs: tuple[int, ...]) -> None:
        self.values, self.rows, self.costs = values, rows, costs


class Step(NamedTuple):
    """The effect of an equation on the clusters that it reads.

    content: the cluster after it; None if everything is decided. values: the source of each value
    in it. agreed: (source, layouts) of values on which all rows agree. A source is (cluster,
    position) in an old cluster, (READ, number of a variable) or (MADE, number of a result).
    parents: for each row, the rows of the old clusters that led to it. strategies: the one taken,
    for each row.
    """
    content: ClusterTable | None
    values: tuple[tuple[int, int], ...]
    agreed: tuple[tuple[tuple[int, int], LayoutIds], ...]
    parents: tuple[tuple[int, ...], ...]
    strategies: tuple[Strategy | None, ...]


READ, MADE = -1, -2


class StepContext(NamedTuple):
    """All that a step depends on besides the decision of the equation.

    contents: the clusters that are read. sources: for each variable, its (cluster, position), or
    (READ, its layouts). ends: for each variable, whether this is its last reader. unread: for each
    result, whether it has no reader. later: for each variable, what later readers prefer.
    preferences: the same for each result.
    """
    contents: tuple[ClusterTable, ...]
    sources: tuple[tuple[int, LayoutIds | int], ...]
    ends: tuple[bool, ...]
    unread: tuple[bool, ...]
    later: tuple[Preference, ...]
    preferences: tuple[Preference, ...]
    repeats: tuple[int, ...]
    budget: SearchBudget


def step(layouts: LayoutTable, decision: Decision, context: StepContext) -> Step:
    """The cluster that an equation leaves of those that it reads."""
    contents, sources, budget = context.contents, context.sources, context.budget
    read_at = {s: i for i, s in enumerate(sources) if s[0] >= 0}
    # the values that stay alive: unread ones of the clusters, then operands, then results
    places: list[tuple[int, int]] = []
    values: list[ExpectedCost] = []
    for c, content in enumerate(contents):
        for place, value in enumerate(content.values):
            if (c, place) not in read_at:
                places.append((c, place))
                values.append(value)
    limits = tuple(places)
    living = [i for i, ends in enumerate(context.ends) if not ends]
    for i in living:
        c, place = sources[i]
        places.append((c, place) if c >= 0 else (READ, i))       # type: ignore
        values.append(layouts.expected[decision.var_kinds[i], decision.var_homes[i],
                                       context.later[i]])
    made = [k for k, unread in enumerate(context.unread) if not unread]
    count = decision.count
    for k in made:
        places.append((MADE, k))
        values.append(layouts.expected[decision.kinds[count + k], decision.homes[count + k],
                                       context.preferences[k]])

    found: dict[Row, tuple[int, tuple[int, ...], Strategy | None]] = {}
    outs = transitions(layouts, decision, context.preferences, context.repeats, context.ends,
                       budget.transitions)
    for cost, parents in _merged(contents, budget.merged):
        held: tuple[LayoutIds, ...] = ()
        for c, place in sources:
            held += (contents[c].rows[parents[c]][place] if c >= 0 else place,)     # type: ignore
        stay: Row = ()
        for c, place in limits:
            stay += (contents[c].rows[parents[c]][place],)
        for more, strategy, operands, results in outs[held]:
            row = stay
            for i in living:
                row += (operands[i],)
            for k in made:
                row += ((results[k],),)
            total = cost + more
            if row not in found or total < found[row][0]:
                found[row] = total, parents, strategy
    return _settled(layouts, places, values, found, budget)


def _merged(contents: Sequence[ClusterTable], most: int) -> list[tuple[int, tuple[int, ...]]]:
    """(cost, row in each cluster) for the product of clusters, the most promising first."""
    if not contents:
        return [(0, ())]
    if len(contents) < 2:
        return [(cost, (i,)) for i, cost in enumerate(contents[0].costs)]
    found: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
    for content in contents:
        gaps = _expected_costs(content.values, content.rows)
        # twice the cost of each, plus what is expected to be paid
        found = [(rank + 2 * more + gap, cost + more, (*parents, i))
                 for rank, cost, parents in found
                 for i, (more, gap) in enumerate(zip(content.costs, gaps, strict=True))]
        if found[most:]:
            found.sort(key=itemgetter(0))
            del found[most:]
    return [(cost, parents) for _, cost, parents in found]


def _expected_costs(values: Sequence[ExpectedCost], rows: Iterable[Row]) -> list[int]:
    """The expected cost of the values of each row."""
    expected_costs: list[int] = []
    for row in rows:
        ahead = 0
        for expected, held in zip(values, row):  # noqa: B905 (speed)
            ahead += expected[held]
        expected_costs.append(ahead)
    return expected_costs


def _settled(layouts: LayoutTable, places: Sequence[tuple[int, int]],
             values: Sequence[ExpectedCost],
             found: dict[Row, tuple[int, tuple[int, ...], Strategy | None]],
             budget: SearchBudget) -> Step:
    """The step that keeps the promising rows and decides the values on which they agree."""
    ranked = _promising(layouts.gaps, values, found, budget)
    first = ranked[0]
    if len(ranked) < 2:
        _, parents, strategy = found[first]
        return Step(None, (), tuple(zip(places, first, strict=True)), (parents,), (strategy,))
    while True:
        differ: list[int] = []
        for c, held in enumerate(first):
            for row in ranked:
                if row[c] != held:
                    differ.append(c)
                    break
        if not differ[_WIDEST:]:
            break
        del ranked[len(ranked) // 2:]
    rows = tuple(ranked)
    agreed: tuple = ()
    if len(differ) < len(first):
        agreed = tuple([(place, first[c]) for c, place in enumerate(places) if c not in differ])
        rows = tuple([tuple([row[c] for c in differ]) for row in ranked])
        places, values = [places[c] for c in differ], [values[c] for c in differ]
    entries = [found[row] for row in ranked]
    least = entries[0][0]
    content = None
    if len(ranked) > 1:
        content = _content(layouts, tuple(values), rows,
                           tuple([cost - least for cost, _, _ in entries]))
    return Step(content, tuple(places), agreed, tuple([parents for _, parents, _ in entries]),
                tuple([strategy for _, _, strategy in entries]))


def _content(layouts: LayoutTable, values: tuple[ExpectedCost, ...], rows: tuple[Row, ...],
             costs: tuple[int, ...]) -> ClusterTable:
    key = ("content", values, rows, costs)
    memo = layouts.memo
    if key not in memo:
        memo[key] = ClusterTable(values, rows, costs)
    return memo[key]


def _promising(gaps: Mapping[tuple[int, LayoutIds, LayoutIds], int], values: Sequence[ExpectedCost],
               found: dict[Row, tuple], budget: SearchBudget) -> list[Row]:
    """The rows to keep, the cheapest first, without those that cost as much as resharding from one
    that is kept.
    """
    rows = list(found)
    if len(rows) < 2:
        return rows
    costs = [entry[0] for entry in found.values()]
    expected_costs = _expected_costs(values, rows)
    kinds = [v.kind for v in values]
    # what rows cost at least and at most, if what is ahead turns out otherwise than expected
    lower: list[int] = []
    least, doubt = 0, budget.doubt
    if doubt:
        upper: list[int] = []
        for cost, ahead in zip(costs, expected_costs, strict=True):
            mean, wrong = 4 * (cost + ahead), doubt * (ahead if ahead > 0 else -ahead)
            lower.append(mean - wrong)
            upper.append(mean + wrong)
        least = min(upper)
    selected: list[int] = []
    dropped: set[int] = set()       # no cheaper than resharding from a row that is kept
    numbers = range(len(rows))
    for weight, count in zip(_WEIGHTS, budget.limits, strict=True):
        ranks = [2 * cost + weight * ahead for cost, ahead in zip(costs, expected_costs,
                                                                  strict=True)]
        order = sorted(numbers, key=ranks.__getitem__)
        for i in order[:budget.compared]:
            if i in dropped or i in selected or (lower and lower[i] > least):
                continue
            row, cost = rows[i], costs[i]
            for j in selected:
                left = cost - costs[j]
                if left < 0:
                    continue
                for kind, held, have in zip(kinds, row, rows[j]):  # noqa: B905 (speed)
                    if held is not have and held != have:
                        left -= gaps[kind, have, held]
                        if left < 0:
                            break
                else:
                    dropped.add(i)
                    break
            else:
                selected.append(i)
                count -= 1
                if not count:
                    break
    selected.sort(key=costs.__getitem__)
    return [rows[i] for i in selected]
