"""Clusters: decisions that hang together, and what an equation makes of them.

Where programs up to an equation differ only in what some live values are held in, these values form
a *cluster*: a table with a row for each way of holding them, and its price above that of the
cheapest. Values in different clusters are decided independently. An equation joins the clusters
that it reads, gives its results, and ends what nothing reads any more; rows that are as dear as it
is to come to them from a cheaper one are dropped, and as soon as all rows agree on a value, or one
row is left, that is decided.

Tables are interned and say nothing about which variables they are about, so what an equation makes
of them is found out once for all layers of a kind. After variable elimination in graphical models
(Dechter, Bucket elimination, 1999).
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .layouts import Expected, Goal, Held, Layouts
from .options import Option
from .outcomes import outcomes
from .tasks import Task

Row = tuple[Held, ...]


class Effort(NamedTuple):
    """How widely is searched.

    kept: rows side by side: so many by their price with all that is expected to be paid for what
    they hold, with half of it, and without; each taken from the `compared` first. outcomes: of one
    equation for one row. joined: rows of clusters that are joined. all_wishes: whether it is tried
    what readers would like though they gain nothing over bringing the value back. doubt: quarters
    by which what is expected to be paid may be wrong; rows that are dearer even so are dropped,
    none with 0.
    """
    kept: tuple[int, int, int]
    compared: int
    outcomes: int
    joined: int
    all_wishes: bool
    doubt: int


_WEIGHTS = (2, 1, 0)            # halves of what is expected to be paid
_WIDEST = 24                    # values of a cluster


class Content:
    """The table of a cluster. values: what is expected to be paid for each. prices: above that of
    the first row.
    """

    __slots__ = ("prices", "rows", "values")

    def __init__(self, values: tuple[Expected, ...], rows: tuple[Row, ...], prices: tuple[int, ...]
                 ) -> None:
        self.values, self.rows, self.prices = values, rows, prices


class Step(NamedTuple):
    """What an equation makes of clusters.

    content: of the cluster that it leaves; None where all is decided. values: where those of it
    come from, and agreed: (from where, held) of what all rows hold alike; both as (cluster, place)
    of an old cluster, (READ, number of a variable) or (MADE, number of a result). parents: per row
    the rows of the old clusters that it comes from. options: that are taken, per row.
    """
    content: Content | None
    values: tuple[tuple[int, int], ...]
    agreed: tuple[tuple[tuple[int, int], Held], ...]
    parents: tuple[tuple[int, ...], ...]
    options: tuple[Option | None, ...]


READ, MADE = -1, -2


class Reading(NamedTuple):
    """How an equation meets clusters; what a step depends on besides the task.

    sources: per variable that it reads, its (cluster, place), or (READ, what it is held in).
    ends: per variable, whether nothing reads it later. unread: per result, whether nothing does.
    later: per variable, what those like that read it later; goals: per result.
    """
    contents: tuple[Content, ...]
    sources: tuple[tuple[int, Held | int], ...]
    ends: tuple[bool, ...]
    unread: tuple[bool, ...]
    later: tuple[Goal, ...]
    goals: tuple[Goal, ...]
    repeats: tuple[int, ...]
    effort: Effort


def step(layouts: Layouts, task: Task, reading: Reading) -> Step:
    """The clusters that an equation reads, after it."""
    contents, sources, effort = reading.contents, reading.sources, reading.effort
    read_at = {s: i for i, s in enumerate(sources) if s[0] >= 0}
    # the values that live on: those of the clusters that are not read, then operands and results
    places: list[tuple[int, int]] = []
    values: list[Expected] = []
    for c, content in enumerate(contents):
        for place, value in enumerate(content.values):
            if (c, place) not in read_at:
                places.append((c, place))
                values.append(value)
    kept = tuple(places)
    living = [i for i, ends in enumerate(reading.ends) if not ends]
    for i in living:
        c, place = sources[i]
        places.append((c, place) if c >= 0 else (READ, i))     # type: ignore[arg-type]
        values.append(layouts.expected[task.var_kinds[i], task.var_homes[i], reading.later[i]])
    made = [k for k, unread in enumerate(reading.unread) if not unread]
    count = len(task.places)
    for k in made:
        places.append((MADE, k))
        values.append(layouts.expected[task.kinds[count + k], task.homes[count + k],
                                      reading.goals[k]])

    found: dict[Row, tuple[int, tuple[int, ...], Option | None]] = {}
    fixed = [None if c >= 0 else held for c, held in sources]
    outs = outcomes(layouts, task, reading.goals, reading.repeats, reading.ends, effort.outcomes)
    for price, parents in _joined(contents, effort.joined):
        held: tuple[Held, ...] = tuple([
            contents[c].rows[parents[c]][place] if own is None else own         # type: ignore
            for (c, place), own in zip(sources, fixed, strict=True)])
        stay = [contents[c].rows[parents[c]][place] for c, place in kept]
        for more, option, operands, results in outs[held]:
            row = (*stay, *[operands[i] for i in living], *[(results[k],) for k in made])
            total = price + more
            if row not in found or total < found[row][0]:
                found[row] = total, parents, option
    return _settled(layouts, places, values, found, effort)


def _joined(contents: Sequence[Content], most: int) -> list[tuple[int, tuple[int, ...]]]:
    """(price, row of each) of clusters taken together, the most promising first."""
    if len(contents) == 1:
        return [(price, (i,)) for i, price in enumerate(contents[0].prices)]
    found: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
    for content in contents:
        gaps = [_ahead(content.values, row) for row in content.rows]
        found = [(price + more, gap + gaps[i], (*parents, i)) for price, gap, parents in found
                 for i, more in enumerate(content.prices)]
        if len(found) > most:
            found.sort(key=lambda f: 2 * f[0] + f[1])
            del found[most:]
    return [(price, parents) for price, _, parents in found]


def _ahead(values: Sequence[Expected], row: Row) -> int:
    """What is expected to be paid for what a row holds."""
    return sum([expected[held] for expected, held in zip(values, row)])  # noqa: B905 (speed)


def _settled(layouts: Layouts, places: Sequence[tuple[int, int]], values: Sequence[Expected],
             found: dict[Row, tuple[int, tuple[int, ...], Option | None]], effort: Effort) -> Step:
    """What goes on of these rows, and what all of them agree on."""
    ranked = _promising(layouts.gaps, values, found, effort)
    while True:
        first = ranked[0]
        differ = [c for c in range(len(values)) if any([r[c] != first[c] for r in ranked])]
        if len(differ) <= _WIDEST:
            break
        del ranked[len(ranked) // 2:]
    agreed = tuple([(place, first[c]) for c, place in enumerate(places) if c not in differ])
    entries = [found[row] for row in ranked]
    content = None
    if len(ranked) > 1:
        least = entries[0][0]
        content = _content(layouts, tuple([values[c] for c in differ]),
                           tuple([tuple([row[c] for c in differ]) for row in ranked]),
                           tuple([price - least for price, _, _ in entries]))
    return Step(content, tuple([places[c] for c in differ]), agreed,
                tuple([parents for _, parents, _ in entries]),
                tuple([option for _, _, option in entries]))


def _content(layouts: Layouts, values: tuple[Expected, ...], rows: tuple[Row, ...],
             prices: tuple[int, ...]) -> Content:
    key = ("content", values, rows, prices)
    content = layouts.memo.get(key)
    if content is None:
        content = layouts.memo[key] = Content(values, rows, prices)
    return content


def _promising(gaps: Mapping[tuple[int, Held, Held], int], values: Sequence[Expected],
               found: dict[Row, tuple], effort: Effort) -> list[Row]:
    """The rows to go on with, the cheapest first.

    Left out are rows that are as dear as it is to come to them from one that is taken.
    """
    rows = list(found)
    if len(rows) == 1:
        return rows
    prices = [entry[0] for entry in found.values()]
    aheads = [sum([expected[held] for expected, held in zip(values, row)])  # noqa: B905 (speed)
              for row in rows]
    kinds = [v.kind for v in values]
    # what rows cost at least and at most, if what is ahead turns out otherwise than expected
    hoped: list[int] = []
    least = 0
    if effort.doubt:
        hoped = [4 * (price + ahead) - effort.doubt * abs(ahead)
                 for price, ahead in zip(prices, aheads, strict=True)]
        least = min([4 * (price + ahead) + effort.doubt * abs(ahead)
                     for price, ahead in zip(prices, aheads, strict=True)])
    chosen: list[int] = []
    for weight, count in zip(_WEIGHTS, effort.kept, strict=True):
        if not count:
            continue
        ranks = [2 * price + weight * ahead for price, ahead in zip(prices, aheads, strict=True)]
        order = sorted(range(len(rows)), key=ranks.__getitem__)
        for i in order[:effort.compared]:
            if i in chosen or (hoped and hoped[i] > least):
                continue
            row, price = rows[i], prices[i]
            for j in chosen:
                left = price - prices[j]
                if left < 0:
                    continue
                for kind, held, have in zip(kinds, row, rows[j]):  # noqa: B905 (speed)
                    if held is not have and held != have:
                        left -= gaps[kind, have, held]
                        if left < 0:
                            break
                else:
                    break
            else:
                chosen.append(i)
                count -= 1
                if not count:
                    break
    chosen.sort(key=prices.__getitem__)
    return [rows[i] for i in chosen]
