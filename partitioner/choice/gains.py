"""Goals: what an equation would gain from having its operands otherwise than their types say.

Pure functions of tasks and layouts, remembered, so that repeated layers cost a dictionary lookup.
"""
from __future__ import annotations

from operator import itemgetter

from .decisions import Task
from .layouts import ALL, WAITS, WANTED, Goal, Held, Layouts


def goals_before(layouts: Layouts, task: Task, after: tuple[Goal, ...], all_of_them: bool,
                 liked: bool) -> tuple[Goal, ...]:
    """Per variable, what the equation would gain from having it otherwise than its type says.

    after: per result, what its readers would; liked: whether they would like any otherwise.
    all_of_them: also what gains nothing over bringing the value back.
    """
    key = after, all_of_them
    if key not in task.goals:
        if task.settled is not None and not liked:
            found = tuple(_waiting(layouts, task, after))
        elif task.info is None or task.needs:
            found = tuple([
                () if need == home else ((need, -layouts.prices[kind, home, need]),)
                for kind, home, need in zip(task.var_kinds, task.var_homes, task.needs,
                                            strict=True)])
        else:
            found = _goals_before(layouts, task, after, all_of_them)
        task.goals[key] = found
    return task.goals[key]


def _goals_before(layouts: Layouts, task: Task, after: tuple[Goal, ...], all_of_them: bool
                  ) -> tuple[Goal, ...]:
    kinds, homes, count = task.kinds, task.homes, task.count
    prices, expected = layouts.prices, layouts.expected
    ends = [(kind, home, goal, None if pinned else expected[kind, home, goal])
            for kind, home, goal, pinned in zip(kinds[count:], homes[count:], after, task.pinned,
                                                strict=True)]
    hints: list[Held] = [(n,) for n in homes[:count]]
    for _, home, goal, _ in ends:
        hint: Held = (home,)
        for n, _ in goal:
            if n >= 0:
                hint += (n,)
        hints.append(hint)
    places = task.places
    priced: list[tuple[int, dict[int, int]]] = []
    for option in task.table.suggested(hints, task.sums):
        price = option.price
        needs: dict[int, int] = {}
        for p, kind, home, need in zip(places, kinds, homes, option.needs):  # noqa: B905 (speed)
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
    out = _waiting(layouts, task, after)
    var_kinds, var_homes = task.var_kinds, task.var_homes
    full = [0] * len(out)                       # how many layouts of each are noted
    liked: tuple[tuple[int, int], ...] = ()     # (variable, layout)
    for price, needs in priced[:2 * WANTED]:
        for p in needs:
            need = needs[p]
            if full[p] < WANTED and (p, need) not in liked:
                kind, home = var_kinds[p], var_homes[p]
                there, back = prices[kind, home, need], prices[kind, need, home]
                gain = price - least - there
                if gain < -there:
                    gain = -there
                if gain < back or all_of_them:
                    out[p] += ((need, gain if gain < back else back),)
                    liked += ((p, need),)
                    full[p] += 1
    return tuple(out)


def _waiting(layouts: Layouts, task: Task, after: tuple[Goal, ...]) -> list[Goal]:
    """Per variable, the share of finishing a sum that is left when it passes this equation."""
    shares = [*task.nothing]
    if task.linear and not task.pinned[0]:
        places, kinds, sizes, shapes = task.places, task.kinds, layouts.sizes, layouts.shapes
        made, goal = kinds[task.count], after[0]
        result = sizes[made] * shapes[made][1]
        result *= goal[0][1] if goal and goal[0][0] == WAITS else ALL
        for members in task.linear:
            alike = 0
            for _ in members:
                alike += 1
            for i in members:
                p = places[i]
                if p >= 0:
                    own = sizes[kinds[i]] * shapes[kinds[i]][1] * alike
                    share = result // (own or 1)
                    if share < (shares[p][0][1] if shares[p] else ALL):
                        shares[p] = ((WAITS, share),)
    return shares
