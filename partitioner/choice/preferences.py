"""Preferences: what an equation would gain from operands in other layouts than their types say.

The backward pass of the look-ahead. Input: a decision, and the layouts that readers prefer for its
results. Output: a few layouts for each operand, each with its gain. Pure functions, remembered, so
that repeated layers cost a dictionary lookup.
"""
from __future__ import annotations

from operator import itemgetter

from .decisions import Decision
from .layout_costs import DEFERRED, MOST_PREFERRED, WHOLE_SHARE, LayoutIds, Preference
from .layouts import LayoutTable


def operand_preferences(layouts: LayoutTable, decision: Decision, after: tuple[Preference, ...],
                        all_of_them: bool, preferred: bool) -> tuple[Preference, ...]:
    """For each variable the equation's gain from having it in other layouts than its type's.

    after: for each result, the preference of its readers. preferred: whether they prefer any other
    layout. all_of_them: keep layouts that gain nothing over resharding the value back.
    """
    key = after, all_of_them
    if key not in decision.preferences:
        if decision.settled is not None and not preferred:
            found = tuple(_deferral_shares(layouts, decision, after))
        elif decision.info is None or decision.needs:
            found = tuple([
                () if need == home else ((need, -layouts.costs[kind, home, need]),)
                for kind, home, need in zip(decision.var_kinds, decision.var_homes, decision.needs,
                                            strict=True)])
        else:
            found = _operand_preferences(layouts, decision, after, all_of_them)
        decision.preferences[key] = found
    return decision.preferences[key]


def _operand_preferences(layouts: LayoutTable, decision: Decision, after: tuple[Preference, ...],
                         all_of_them: bool) -> tuple[Preference, ...]:
    """`operand_preferences` of an equation with strategies: each is costed from its operands' homes
    to the results that readers prefer, and an operand gains what its cheapest strategy saves.
    """
    kinds, homes, count = decision.kinds, decision.homes, decision.count
    costs, expected = layouts.costs, layouts.expected
    ends = [(kind, home, preference, None if pinned else expected[kind, home, preference]) for kind,
            home, preference, pinned in zip(kinds[count:], homes[count:], after, decision.pinned,
                                            strict=True)]
    hints: list[LayoutIds] = [(n,) for n in homes[:count]]
    for _, home, preference, _ in ends:
        hint: LayoutIds = (home,)
        for n, _ in preference:
            if n >= 0:
                hint += (n,)
        hints.append(hint)
    places = decision.places
    ranked_needs: list[tuple[int, dict[int, int]]] = []
    for strategy in decision.table.suggested(hints, decision.sums):
        cost = strategy.cost
        needs: dict[int, int] = {}
        for p, kind, home, need in zip(places, kinds, homes, strategy.needs):  # noqa: B905 (speed)
            if home != need:
                cost += costs[kind, home, need]
                if p >= 0:
                    needs[p] = need
        for (kind, home, preference, ahead), made in zip(ends, strategy.results):  # noqa: B905 (speed)
            if ahead is None:
                cost += costs[kind, made, home]
            elif made != home or preference:
                cost += ahead[made,]
        ranked_needs.append((cost, needs))
    ranked_needs.sort(key=itemgetter(0))
    return _with_gains(layouts, decision, _deferral_shares(layouts, decision, after), ranked_needs,
                       all_of_them)


def _with_gains(layouts: LayoutTable, decision: Decision, out: list[Preference],
                ranked_needs: list[tuple[int, dict[int, int]]], all_of_them: bool
                ) -> tuple[Preference, ...]:
    """The preferences `out` with the gains from the layouts that the cheapest strategies need.
    ranked_needs: (cost of a strategy, the layout of each variable in it), the cheapest first.
    """
    costs, least = layouts.costs, ranked_needs[0][0]
    var_kinds, var_homes = decision.var_kinds, decision.var_homes
    full = [0] * len(out)                       # how many layouts of each are noted
    preferred: tuple[tuple[int, int], ...] = ()     # (variable, layout)
    for cost, needs in ranked_needs[:2 * MOST_PREFERRED]:
        for p in needs:
            need = needs[p]
            if full[p] < MOST_PREFERRED and (p, need) not in preferred:
                kind, home = var_kinds[p], var_homes[p]
                there, back = costs[kind, home, need], costs[kind, need, home]
                gain = cost - least - there
                if gain < -there:
                    gain = -there
                if gain < back or all_of_them:
                    out[p] += ((need, gain if gain < back else back),)
                    preferred += ((p, need),)
                    full[p] += 1
    return tuple(out)


def _deferral_shares(layouts: LayoutTable, decision: Decision, after: tuple[Preference, ...]
                     ) -> list[Preference]:
    """For each variable the share of the cost of finishing a partial sum that remains after this
    equation.
    """
    shares = [*decision.no_preferences]
    if decision.linear and not decision.pinned[0]:
        places, kinds = decision.places, decision.kinds
        sizes, shapes = layouts.sizes, layouts.shapes
        made, preference = kinds[decision.count], after[0]
        result = sizes[made] * shapes[made][1]
        result *= preference[0][1] if preference and preference[0][0] == DEFERRED else WHOLE_SHARE
        for members in decision.linear:
            elementwise = 0
            for _ in members:
                elementwise += 1
            for i in members:
                p = places[i]
                if p >= 0:
                    own = sizes[kinds[i]] * shapes[kinds[i]][1] * elementwise
                    share = result // (own or 1)
                    if share < (shares[p][0][1] if shares[p] else WHOLE_SHARE):
                        shares[p] = ((DEFERRED, share),)
    return shares
