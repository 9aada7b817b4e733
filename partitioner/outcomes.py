"""Outcomes: how one equation may go on from what its operands are held in, and for how much; and
which layouts it would like its operands in.

Pure functions of tasks and layouts, remembered, so that repeated layers cost a dictionary lookup.
"""
from __future__ import annotations

from operator import itemgetter

from .layouts import UNIT, Held, Layouts
from .tasks import Outcome, Task

WANTED = 3                  # layouts that readers would like a value in, besides its own
HELD = 4                    # layouts of one value that are remembered
PASSED_ON = UNIT // 10000   # what passing on a sum counts: it is not done for nothing
_EMPTY: frozenset[str] = frozenset()


def with_layout(held: Held, layout: int) -> Held:
    """What a value is held in when it is brought to one more layout."""
    if layout in held:
        return held
    return (*held, layout) if len(held) < HELD else (held[0], *held[2:], layout)


# -- wishes ----------------------------------------------------------------------------------------

def wishes(layouts: Layouts, task: Task, results: tuple[Held, ...]) -> tuple[Held, ...]:
    """Per variable the layouts that cheap options would have it in, its own perhaps among them.

    results: per result what its readers would like.
    """
    found = task.wishes.get(results)
    if found is None:
        found = task.wishes[results] = (
            tuple([(n,) for n in task.needs]) if task.table is None or task.needs
            else _wishes(layouts, task, results))
    return found


def _wishes(layouts: Layouts, task: Task, results: tuple[Held, ...]) -> tuple[Held, ...]:
    table = task.table
    assert table is not None
    kinds, homes, count = task.kinds, task.homes, len(task.places)
    own = homes[:count]
    ends = [(home, *more) for home, more in zip(homes[count:], results, strict=True)]
    hints = [*((n,) for n in own), *ends]
    price_of = layouts.price
    priced = []
    for option in table.suggested(hints, task.sums):
        price = option.price
        for kind, home, need in zip(kinds, own, option.needs, strict=False):
            if home != need:
                price += price_of(kind, home, need)
        for kind, made, wanted in zip(kinds[count:], option.results, ends, strict=True):
            if made not in wanted:
                price += min([price_of(kind, made, n) for n in wanted])
        priced.append((price, option.needs))
    priced.sort(key=itemgetter(0))
    out: list[dict[int, None]] = [{} for _ in task.var_homes]
    for _, needs in priced[:WANTED]:
        for place, n in zip(task.places, needs, strict=False):
            if place >= 0:
                out[place][n] = None
    return tuple(map(tuple, out))


# -- outcomes --------------------------------------------------------------------------------------

def outcomes(layouts: Layouts, task: Task, held: tuple[Held, ...], wanted: tuple[Held, ...],
             repeats: tuple[int, ...], most: int) -> tuple[Outcome, ...]:
    """How an equation may go on, the most promising first, at most `most`.

    held: what its variables are held in. wanted: per result, layouts that readers would like.
    repeats: per variable, how often the equation runs for one reshard of it; () for once.
    """
    key = (held, wanted, repeats, most)
    found = task.outcomes.get(key)
    if found is None:
        if task.table is None:
            found = (_brought(layouts, task, held, repeats),)
        elif task.needs:
            first = _brought(layouts, task, held, repeats)
            found = tuple([o._replace(price=first.price + o.price, operands=first.operands)
                           for o in _outcomes(layouts, task, task.alone, wanted, (), most)])
        else:
            found = _outcomes(layouts, task, held, wanted, repeats, most)
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


def _outcomes(layouts: Layouts, task: Task, held: tuple[Held, ...], wanted: tuple[Held, ...],
              repeats: tuple[int, ...], most: int) -> tuple[Outcome, ...]:
    table = task.table
    assert table is not None
    kinds, places, count = task.kinds, task.places, len(task.places)
    ends = list(zip(kinds[count:], task.homes[count:], task.pinned, strict=True))
    hints: list[Held] = [() if p < 0 else held[p] for p in places]
    hints += [(home, *more) for home, more in zip(task.homes[count:], wanted, strict=True)]
    nearest, price_of = layouts.nearest, layouts.price
    out: dict[tuple, tuple[int, Outcome]] = {}
    for way in _sums(layouts, task, held):
        for option in table.suggested(hints, way):
            price = option.price if way is task.sums else option.price + PASSED_ON
            now = list(held)
            for p, need, kind in zip(places, option.needs, kinds, strict=False):
                if p >= 0 and need not in now[p]:
                    price += nearest(kind, now[p], need)[0] // (repeats[p] if repeats else 1)
                    now[p] = with_layout(now[p], need)
            results = option.results
            rest = 0
            for k, (kind, home, pinned) in enumerate(ends):
                if results[k] != home:
                    gap = price_of(kind, results[k], home)
                    if pinned:
                        price += gap
                        results = (*results[:k], home, *results[k + 1:])
                    else:
                        rest += gap
            row = (tuple(now), results)
            other = out.get(row)
            if other is None or price < other[1].price:
                out[row] = (price + rest, Outcome(price, option.choice, *row),
                            price > option.price or option.choice.received
                            or option.choice.pending)
    ranked = sorted(out.values(), key=itemgetter(0))
    _, best, moves = ranked[0]
    if moves or best.operands != held:
        return tuple([o for _, o, _ in ranked[:most]])
    # it moves nothing: only what gives a result as some reader would like is of interest besides
    liked = [o for _, o, _ in ranked[1:most] if any([
        n in more and n != m for n, m, more in zip(o.results, best.results, wanted, strict=True)])]
    return (best, *liked)
