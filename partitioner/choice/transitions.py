"""Outcomes: how one equation may go on from what its operands are held in, and for how much.

Pure functions of tasks and layouts, remembered, so that repeated layers cost a dictionary lookup.
"""
from __future__ import annotations

from operator import itemgetter

from .decisions import Outcome, Task
from .layouts import UNIT, Goal, Held, Layouts
from .options import Option

PASSED_ON = UNIT // 10000   # what passing on a sum counts: it is not done for nothing
_EMPTY: frozenset[str] = frozenset()

# what an option costs from its results on: price of bringing pinned ones to where they must be, the
# results then, and what is expected to be paid for them
_Ending = tuple[int, Held, int]
_Row = tuple[tuple[Held, ...], Held]


def outcomes(layouts: Layouts, task: Task, goals: tuple[Goal, ...], repeats: tuple[int, ...],
             ends: tuple[bool, ...], most: int) -> Outcomes:
    """How an equation may go on, by what its variables are held in; see `Outcomes`."""
    key = goals, repeats, ends, most
    found = task.outcomes.get(key)
    if found is None:
        found = task.outcomes[key] = Outcomes(layouts, task, *key)
    return found


class Outcomes(dict[tuple[Held, ...], tuple[Outcome, ...]]):
    """By what the variables of an equation are held in: how it may go on, the most promising first,
    at most `most`.

    goals: per result, what its readers would like. repeats: per variable, how often the equation
    runs for one reshard of it; () for once. ends: per variable, whether nothing reads it later.
    """

    __slots__ = ("ahead", "endings", "hints", "layouts", "living", "most", "repeats", "task",
                 "wanted")

    def __init__(self, layouts: Layouts, task: Task, goals: tuple[Goal, ...],
                 repeats: tuple[int, ...], ends: tuple[bool, ...], most: int) -> None:
        super().__init__()
        self.layouts, self.task, self.most = layouts, task, most
        self.repeats = repeats
        self.living = [i for i, end in enumerate(ends) if not end]
        count = task.count
        made = list(zip(task.kinds[count:], task.homes[count:], goals, strict=True))
        self.wanted = [[n for n, _ in goal if n >= 0] for goal in goals]
        self.hints = [(home, *more) for (_, home, _), more in zip(made, self.wanted, strict=True)]
        self.ahead = [layouts.expected[m] for m in made]
        self.endings: dict[Option, _Ending] = {}

    def __missing__(self, held: tuple[Held, ...]) -> tuple[Outcome, ...]:
        task = self.task
        if task.info is None:
            found = (self._brought(held),)
        elif task.needs:
            first = self._brought(held)
            found = tuple([(first[0] + price, choice, first[2], results)
                           for price, choice, _, results in self._outcomes(task.alone, ())])
        else:
            found = self._outcomes(held, self.repeats)
        self[held] = found
        return found

    def _brought(self, held: tuple[Held, ...]) -> Outcome:
        """What an equation without options takes: its operands as their types say."""
        task, repeats, moved = self.task, self.repeats, self.layouts.moved
        price = 0
        now = []
        for i, (have, kind, need) in enumerate(zip(held, task.var_kinds, task.needs, strict=True)):
            if need not in have:
                more, have = moved[kind, have][need]
                price += more // (repeats[i] if repeats else 1)
            now.append(have)
        return price, None, tuple(now), task.results

    def _outcomes(self, held: tuple[Held, ...], repeats: tuple[int, ...]) -> tuple[Outcome, ...]:
        task, endings, layouts = self.task, self.endings, self.layouts
        places, kinds, sums = task.places, task.kinds, task.sums
        moved, prices = layouts.moved, layouts.prices
        hints = [*(held if task.read is None else [() if p < 0 else held[p] for p in places]),
                 *self.hints]
        ways = [sums]
        if task.linear and layouts.waiting:
            waiting, some = layouts.waiting, False
            for have in held:
                for n in have:
                    some = some or n in waiting
            if some:
                ways = _sums(layouts, task, held)
        # per row: (price with what is expected, price, option, row)
        out: dict[_Row, tuple[int, int, Option, _Row]] = {}
        moves = [moved[key] for key in zip(task.var_kinds, held, strict=True)]
        spots = task.spots
        shape = 0 if repeats else len(spots)
        for way in ways:
            for option in task.table.suggested(hints, way):
                price = option.price if way is sums else option.price + PASSED_ON
                needs = option.needs
                if shape == 1:
                    more, have = moves[0][needs[spots[0]]]
                    price += more
                    now: tuple[Held, ...] = (have,)
                elif shape == 2:
                    more, have = moves[0][needs[spots[0]]]
                    rest, other = moves[1][needs[spots[1]]]
                    price += more + rest
                    now = have, other
                else:
                    now = held
                    for p, need, kind in zip(places, needs, kinds):  # noqa: B905 (speed)
                        if p >= 0 and need not in now[p]:
                            more, have = moved[kind, now[p]][need]
                            price += more // repeats[p] if repeats else more
                            now = (*now[:p], have, *now[p + 1:])
                if option not in endings:
                    more = rest = k = 0
                    results = option.results
                    for ahead, pinned, n in zip(self.ahead, task.pinned, results):  # noqa: B905
                        if n != ahead.home:
                            if pinned:
                                more += prices[ahead.kind, n, ahead.home]
                                results = (*results[:k], ahead.home, *results[k + 1:])
                            else:
                                rest += ahead[n,]
                        elif ahead.goal and not pinned:
                            rest += ahead[n,]
                        k += 1
                    endings[option] = more, results, rest
                more, results, rest = endings[option]
                price += more
                row = now, results
                if row not in out or price < out[row][1]:
                    out[row] = price + rest, price, option, row
        ranked = [*out.values()]
        if len(ranked) > 1:
            ranked.sort(key=itemgetter(0))
            _, price, option, (now, results) = ranked[0]
            if not (now != held or price > option.price or option.received or option.pending):
                # it moves nothing: of interest besides is what gives a result as readers like
                others = ranked[1:self.most]
                del ranked[1:]
                for other in others:
                    for n, m, more in zip(other[3][1], results, self.wanted):  # noqa: B905 (speed)
                        if n != m and n in more:
                            ranked.append(other)
                            break
            if len(ranked) > 1:
                ranked = self._undominated(ranked)
        return tuple([(price, option, now, results)
                      for _, price, option, (now, results) in ranked])

    def _undominated(self, found: list[tuple[int, int, Option, _Row]]
                     ) -> list[tuple[int, int, Option, _Row]]:
        """Without outcomes that are as dear as it is to come to them from a better one; at most
        `most`.
        """
        layouts, living = self.layouts, self.living
        gaps, prices, kinds = layouts.gaps, layouts.prices, self.task.var_kinds
        out: list[tuple[int, int, Option, _Row]] = []
        room = self.most
        for o in found:
            price, (now, results) = o[1], o[3]
            for _, other, _, (operands, others) in out:
                left = price - other
                if left < 0:
                    continue
                for ahead, have, want in zip(self.ahead, others, results):  # noqa: B905 (speed)
                    if have != want:
                        key = ahead.kind, have, want
                        if key in prices:
                            left -= prices[key]
                        else:
                            left = layouts.left(left, *key, ahead.home)
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


def _sums(layouts: Layouts, task: Task, held: tuple[Held, ...]
          ) -> list[tuple[frozenset[str], ...]]:
    """The ways of taking operands as sums: as the types say, and as they are held."""
    ways, table = [task.sums], layouts.table
    for members in task.linear:
        places = [task.places[i] for i in members]
        if min(places) < 0:
            continue
        for pending in dict.fromkeys([table[n][1] for p in places for n in held[p]]):
            if pending:
                way = tuple([pending if i in members else _EMPTY for i in range(len(task.sums))])
                if way not in ways:
                    ways.append(way)
    return ways
