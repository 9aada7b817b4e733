"""Goals: what an equation would gain from having its operands otherwise than their types say.

Pure functions of tasks and layouts, remembered, so that repeated layers cost a dictionary lookup.
"""
from __future__ import annotations

from operator import itemgetter

from .layouts import ALL, WAITS, WANTED, Goal, Held, Layouts, likes, share_of
from .tasks import Task


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
        elif task.info is None or task.needs:
            found = tuple([
                () if need == home else ((need, -layouts.prices[kind, home, need]),)
                for kind, home, need in zip(task.var_kinds, task.var_homes, task.needs,
                                            strict=True)])
        else:
            found = _goals_before(layouts, task, after, all_of_them)
        task.goals[after, all_of_them] = found
    return found


def _goals_before(layouts: Layouts, task: Task, after: tuple[Goal, ...], all_of_them: bool
                  ) -> tuple[Goal, ...]:
    table = task.table
    kinds, homes, count = task.kinds, task.homes, len(task.places)
    prices, expected = layouts.prices, layouts.expected
    ends = [(kind, home, goal, None if pinned else expected[kind, home, goal])
            for kind, home, goal, pinned in zip(kinds[count:], homes[count:], after, task.pinned,
                                                strict=True)]
    hints: list[Held] = [(n,) for n in homes[:count]]
    hints += [(home, *[n for n, _ in goal if n >= 0]) for _, home, goal, _ in ends]
    priced = []
    for option in table.suggested(hints, task.sums):
        price = option.price
        needs: dict[int, int] = {}
        for p, kind, home, need in zip(task.places, kinds, homes, option.needs):  # noqa: B905
            if home != need:
                price += prices[kind, home, need]
                if p >= 0:
                    needs[p] = need
        for (kind, home, goal, ahead), made in zip(ends, option.results):  # noqa: B905 (speed)
            if ahead is None:
                price += prices[kind, made, home]
            elif made != home or goal:
                price += ahead[made,]
        priced.append((price, needs))
    priced.sort(key=itemgetter(0))
    least = priced[0][0]
    out: list[dict[int, int]] = [{} for _ in task.var_homes]
    for price, needs in priced[:2 * WANTED]:
        for p, n in needs.items():
            if n not in out[p] and len(out[p]) < WANTED:
                there = prices[task.var_kinds[p], task.var_homes[p], n]
                back = prices[task.var_kinds[p], n, task.var_homes[p]]
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
        result = _bytes(layouts, task.kinds[count]) * share_of(after[0])
        for members in task.linear:
            for i in members:
                p = task.places[i]
                if p >= 0:
                    own = _bytes(layouts, task.kinds[i]) * len(members)
                    shares[p] = min(shares[p], result // max(own, 1))
    return [((WAITS, share),) if share < ALL else () for share in shares]


def _bytes(layouts: Layouts, kind: int) -> int:
    return layouts.sizes[kind] * layouts.shapes[kind][1]
