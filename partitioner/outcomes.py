"""Outcomes: how one equation may go on from what its operands are held in, and for how much; and
what it would gain from having its operands otherwise.

Pure functions of tasks and layouts, remembered, so that repeated layers cost a dictionary lookup.
"""
from __future__ import annotations

from operator import itemgetter

from .layouts import ALL, UNIT, WAITS, WANTED, Goal, Held, Layouts, likes, share_of
from .tasks import Outcome, Task

HELD = 4                    # layouts of one value that are remembered
PASSED_ON = UNIT // 10000   # what passing on a sum counts: it is not done for nothing
_EMPTY: frozenset[str] = frozenset()


def with_layout(held: Held, layout: int) -> Held:
    """What a value is held in when it is brought to one more layout."""
    if layout in held:
        return held
    return (*held, layout) if len(held) < HELD else (held[0], *held[2:], layout)


# -- goals -----------------------------------------------------------------------------------------

def goals_before(layouts: Layouts, task: Task, after: tuple[Goal, ...], all_of_them: bool
                 ) -> tuple[Goal, ...]:
    """Per variable, what the equation would gain from having it otherwise than its type says.

    after: per result, what its readers would. all_of_them: also what gains nothing over bringing
    the value back.
    """
    found = task.goals.get((after, all_of_them))
    if found is None:
        if task.settled is not None and not likes(after):
            found = tuple(_waiting(layouts, task, after))
        elif task.table is None or task.needs:
            found = tuple([
                () if need == home else ((need, -layouts.price(kind, home, need)),)
                for kind, home, need in zip(task.var_kinds, task.var_homes, task.needs,
                                            strict=True)])
        else:
            found = _goals_before(layouts, task, after, all_of_them)
        task.goals[after, all_of_them] = found
    return found


def _goals_before(layouts: Layouts, task: Task, after: tuple[Goal, ...], all_of_them: bool
                  ) -> tuple[Goal, ...]:
    table = task.table
    assert table is not None
    kinds, homes, count = task.kinds, task.homes, len(task.places)
    ends = list(zip(kinds[count:], homes[count:], after, task.pinned, strict=True))
    hints: list[Held] = [(n,) for n in homes[:count]]
    hints += [(home, *[n for n, _ in goal if n >= 0]) for _, home, goal, _ in ends]
    price_of, ahead = layouts.price, layouts.ahead
    priced = []
    for option in table.suggested(hints, task.sums):
        price = option.price
        needs: dict[int, int] = {}
        for p, kind, home, need in zip(task.places, kinds, homes, option.needs, strict=False):
            if home != need:
                price += price_of(kind, home, need)
                if p >= 0:
                    needs[p] = need
        for (kind, home, goal, pinned), made in zip(ends, option.results, strict=True):
            if pinned:
                price += price_of(kind, made, home)
            elif made != home or goal:
                price += ahead(kind, home, goal, (made,))
        priced.append((price, needs))
    priced.sort(key=itemgetter(0))
    least = priced[0][0]
    out: list[dict[int, int]] = [{} for _ in task.var_homes]
    for price, needs in priced[:2 * WANTED]:
        for p, n in needs.items():
            if n not in out[p] and len(out[p]) < WANTED:
                there = price_of(task.var_kinds[p], task.var_homes[p], n)
                back = price_of(task.var_kinds[p], n, task.var_homes[p])
                gain = max(price - least - there, -there)
                if gain < back or all_of_them:
                    out[p][n] = min(gain, back)
    return tuple([(*waits, *liked.items()) for waits, liked in
                  zip(_waiting(layouts, task, after), out, strict=True)])


def _waiting(layouts: Layouts, task: Task, after: tuple[Goal, ...]) -> list[Goal]:
    """Per variable, the share of finishing a sum that is left when it passes this equation."""
    shares = [ALL] * len(task.var_homes)
    if task.linear and not task.pinned[0]:
        count = len(task.places)
        result = layouts.bytes(task.kinds[count]) * share_of(after[0])
        for members in task.linear:
            for i in members:
                p = task.places[i]
                if p >= 0:
                    own = layouts.bytes(task.kinds[i]) * len(members)
                    shares[p] = min(shares[p], result // max(own, 1))
    return [((WAITS, share),) if share < ALL else () for share in shares]


# -- outcomes --------------------------------------------------------------------------------------

def outcomes(layouts: Layouts, task: Task, held: tuple[Held, ...], goals: tuple[Goal, ...],
             repeats: tuple[int, ...], ends: tuple[bool, ...], most: int) -> tuple[Outcome, ...]:
    """How an equation may go on, the most promising first, at most `most`.

    held: what its variables are held in. goals: per result, what its readers would like.
    repeats: per variable, how often the equation runs for one reshard of it; () for once. ends: per
    variable, whether nothing reads it later.
    """
    key = (held, goals, repeats, ends, most)
    found = task.outcomes.get(key)
    if found is None:
        if task.table is None:
            found = (_brought(layouts, task, held, repeats),)
        elif task.needs:
            first = _brought(layouts, task, held, repeats)
            found = tuple([o._replace(price=first.price + o.price, operands=first.operands)
                           for o in _outcomes(layouts, task, task.alone, goals, (), ends, most)])
        else:
            found = _outcomes(layouts, task, held, goals, repeats, ends, most)
        task.outcomes[key] = found
    return found


def _brought(layouts: Layouts, task: Task, held: tuple[Held, ...], repeats: tuple[int, ...]
             ) -> Outcome:
    """What an equation without options takes: its operands as their types say."""
    price = 0
    now = []
    for i, (have, kind, need) in enumerate(zip(held, task.var_kinds, task.needs, strict=True)):
        if need not in have:
            price += layouts.nearest(kind, have, need)[0] // (repeats[i] if repeats else 1)
            have = with_layout(have, need)
        now.append(have)
    return Outcome(price, None, tuple(now), task.homes[len(task.places):])


def _sums(layouts: Layouts, task: Task, held: tuple[Held, ...]
          ) -> list[tuple[frozenset[str], ...]]:
    """The ways of taking operands as sums: as the types say, and as they are held."""
    ways = [task.sums]
    for members in task.linear:
        places = [task.places[i] for i in members]
        if min(places) < 0:
            continue
        for pending in dict.fromkeys([layouts.table[n][1] for p in places for n in held[p]]):
            if pending:
                way = tuple([pending if i in members else _EMPTY for i in range(len(task.sums))])
                if way not in ways:
                    ways.append(way)
    return ways


def _outcomes(layouts: Layouts, task: Task, held: tuple[Held, ...], goals: tuple[Goal, ...],
              repeats: tuple[int, ...], ends: tuple[bool, ...], most: int) -> tuple[Outcome, ...]:
    table = task.table
    assert table is not None
    kinds, places, count = task.kinds, task.places, len(task.places)
    made = list(zip(kinds[count:], task.homes[count:], goals, task.pinned, strict=True))
    wanted = [[n for n, _ in goal if n >= 0] for goal in goals]
    hints: list[Held] = [() if p < 0 else held[p] for p in places]
    hints += [(home, *more) for home, more in zip(task.homes[count:], wanted, strict=True)]
    nearest, ahead = layouts.nearest, layouts.ahead
    out: dict[tuple, tuple[int, Outcome, bool]] = {}
    for way in _sums(layouts, task, held):
        for option in table.suggested(hints, way):
            price = option.price if way is task.sums else option.price + PASSED_ON
            now = held
            for p, need, kind in zip(places, option.needs, kinds):  # noqa: B905 (speed)
                if p >= 0 and need not in now[p]:
                    price += nearest(kind, now[p], need)[0] // (repeats[p] if repeats else 1)
                    now = (*now[:p], with_layout(now[p], need), *now[p + 1:])
            results = option.results
            rest = 0
            for k, (kind, home, goal, pinned) in enumerate(made):
                if pinned:
                    if results[k] != home:
                        price += layouts.price(kind, results[k], home)
                        results = (*results[:k], home, *results[k + 1:])
                elif results[k] != home or goal:
                    rest += ahead(kind, home, goal, (results[k],))
            row = (now, results)
            other = out.get(row)
            if other is None or price < other[1].price:
                out[row] = (price + rest, Outcome(price, option.choice, *row),
                            bool(price > option.price or option.choice.received
                                 or option.choice.pending))
    ranked = sorted(out.values(), key=itemgetter(0))
    _, best, moves = ranked[0]
    if moves or best.operands != held:
        found = [o for _, o, _ in ranked]
    else:           # it moves nothing: of interest besides is what gives a result as readers like
        found = [best, *[o for _, o, _ in ranked[1:most] if any([
            n in more and n != m
            for n, m, more in zip(o.results, best.results, wanted, strict=True)])]]
    if len(found) == 1:
        return tuple(found)
    return _undominated(layouts, task, found, [i for i, end in enumerate(ends) if not end], most)


def _undominated(layouts: Layouts, task: Task, found: list[Outcome], living: list[int], most: int
                 ) -> tuple[Outcome, ...]:
    """Without outcomes that are as dear as it is to come to them from a better one; at most `most`.
    """
    gap, price = layouts.gap, layouts.price
    kinds, made = task.var_kinds, task.kinds[len(task.places):]
    out: list[Outcome] = []
    for o in found:
        for better in out:
            left = o.price - better.price
            for kind, have, want in zip(made, better.results, o.results, strict=True):
                if have != want:
                    left -= price(kind, have, want)
            if left < 0:
                continue
            for i in living:
                have, want = better.operands[i], o.operands[i]
                if have != want:
                    left -= gap(kinds[i], have, want)
            if left >= 0:
                break
        else:
            out.append(o)
            if len(out) == most:
                break
    return tuple(out)
