"""Look-ahead: the strategy that each equation takes, by what it costs before and after.

A value whose layout is not pinned need not have the layout of its type: it keeps the one in which
its equation produced it, and each reader reshards it as needed. The cheapest such program is found
by dynamic programming along the dataflow. Backward, each value collects the layouts that its
readers prefer (preferences.py); forward, values with several possible layouts form clusters
(clusters.py). What does not conflict, and is not near a conflict, is decided at once; chains, forks
and joins of what does are decided together, in time linear in equations.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence, Set

from ...ir.program import Equation, Program, Var
from ...ir.types import Entries
from .clusters import MADE, READ, ClusterTable, SearchBudget, Step, StepContext, step
from .decisions import Decision, EquationDecision, SubDecision, Transition
from .layout_costs import DEFERRED, LayoutIds, Preference, any_preferred
from .layouts import LayoutTable
from .preferences import operand_preferences
from .strategies import Strategy, StrategySpec
from .transitions import transitions

# (up to this many equations, budget): short programs are searched more widely.
BUDGETS = ((48, SearchBudget((4, 4), 12, 4, 32, True, 0)),
           (400, SearchBudget((3, 2), 12, 4, 16, False, 2)),
           (math.inf, SearchBudget((2, 1), 8, 3, 16, False, 2)))


class _Cluster:
    """A cluster of this program: the variables that its table is about, and its history: part
    `part` of the program made it by taking `after` on the clusters `merged`.
    """

    __slots__ = ("after", "content", "merged", "part", "variables")

    content: ClusterTable

    def __init__(self, part: int, merged: list[_Cluster], after: Step) -> None:
        self.part, self.merged, self.after = part, merged, after
        self.content = after.content        # type: ignore[assignment]  # none once all is decided
        self.variables: list[Var] = []


# A part of an equation: its decision (see SubDecision), distinct variables it reads, its results.
_Part = tuple[Decision, tuple[Var, ...], tuple[Var, ...]]
# What readers prefer: of a part's results, whether they prefer any other layout, and of the
# variables that it reads, what later readers prefer. () where nothing is preferred of any.
_ReaderPreferences = tuple[tuple[Preference, ...], bool, tuple[Preference, ...]]
_NO_PREFERENCES: _ReaderPreferences = (), False, ()


def _parts(program: Program, members: Sequence[EquationDecision]) -> list[_Part]:
    """The parts of all equations, in order."""
    parts: list[_Part] = []
    for eqn, own in zip(program.eqns, members, strict=True):
        invars, made = eqn.invars, eqn.outvars
        if own.__class__ is Decision:
            if own.read is not None:                                            # type: ignore
                invars = tuple([invars[i] for i in own.read])                   # type: ignore
            parts.append((own, invars, made))                                     # type: ignore
        else:
            for decision, operands, results in own:                                 # type: ignore
                read = operands if decision.read is None else [operands[i] for i in decision.read]
                parts.append((decision, tuple([invars[i] for i in read]),              # type: ignore
                           tuple([made[k] for k in results])))
    return parts


SumTrips = Callable[[], Mapping[int, int]]         # see `LookaheadSearch`
LayoutPaths = dict[tuple[Decision, int], list[tuple[Entries | None, Hashable]]]


class LookaheadSearch:
    """The search over one program.

    members: the decisions of each equation. repeats: for each value that a loop does not change,
    how often equations run for one reshard of it. sum_trips: returns, for each result that a loop
    may carry as a partial sum, how often the loop runs until the sum is finished. free: numbers of
    results that may be in any layout. types_stay: whether every value ends in the layout of its
    type. paths: by decision and operand the layouts in which it is brought there, None for that in
    which it is taken, each with the groups of devices inside of which that happens.
    """

    types_stay = False
    budgets = BUDGETS

    def __init__(self, layouts: LayoutTable, program: Program,
                 members: Sequence[EquationDecision], repeats: Mapping[Var, int],
                 sum_trips: SumTrips, free: Set[int] = frozenset()) -> None:
        self.free, self.sum_trips = free, sum_trips
        self.trips: Mapping[int, int] | None = None     # what it gives, once asked
        self.layouts = layouts
        self.program = program
        self.budget = next(e for n, e in self.budgets if len(program.eqns) <= n)
        self.repeats = repeats
        self.members = members
        self.parts = _parts(program, members)
        self.last: dict[Var, int] = {}  # per value the number of the part that reads it last
        last = self.last
        for k, (_, read, _) in enumerate(self.parts):
            for v in read:
                last[v] = k
        for atom in program.outvars:
            if isinstance(atom, Var):
                last[atom] = len(self.parts)
        self.reader_preferences: list[_ReaderPreferences] = [_NO_PREFERENCES] * len(self.parts)
        self.base: dict[Var, LayoutIds] = {}     # what values are held in, where not as typed alone
        # values that are not, and the place of each in its cluster
        self.clusters: dict[Var, tuple[_Cluster, int]] = {}
        self.found: list[Strategy | Decision | None] = [None] * len(self.parts)
        self.paths: LayoutPaths = {}
        self.repeats_work = False       # whether devices compute the same, as the planner chose

    def run(self) -> list[Strategy | StrategySpec | Decision | None]:
        """For every equation its strategy, the spec of one that has several parts, or its decision
        if that is settled; None where there is no choice.
        """
        self._collect_preferences()
        self._search()
        for taken, (decision, _, _) in zip(self.found, self.parts, strict=True):
            if (taken.__class__ is Strategy
                    and (*taken.needs, *taken.results) != decision.homes        # type: ignore
                    and decision.repeats(taken)):                               # type: ignore
                self.repeats_work = True
                break
        found: list[Strategy | StrategySpec | Decision | None] = []
        if len(self.parts) == len(self.members):
            found += self.found
            return found
        at = 0
        for eqn, members in zip(self.program.eqns, self.members, strict=True):
            if isinstance(members, Decision):
                found.append(self.found[at])
                at += 1
            else:
                found.append(_merged(eqn, members, self.found[at:at + len(members)]))
                at += len(members)
        return found

    # -- backward: what readers would gain -----------------------------------------------------

    def _collect_preferences(self) -> None:
        """Fill `reader_preferences`, last part first: what readers prefer of the part's results,
        whether that is another layout than a type's, and what later readers prefer of its operands.
        """
        layouts, every, last = self.layouts, self.budget.all_preferences, self.last
        reader_preferences = self.reader_preferences
        preferences: dict[Var, Preference] = {}         # of the readers that have been seen
        k = len(reader_preferences)
        for decision, read, made in reversed(self.parts):
            k -= 1
            after: tuple[Preference, ...] = ()
            preferred = False
            if preferences:
                for v in made:
                    if v in preferences:
                        if len(made) > 1:
                            after = tuple([preferences[r] if r in preferences else ()
                                           for r in made])
                            preferred = any_preferred(after)
                        else:
                            preference = preferences[v]
                            after = (preference,)
                            preferred = bool(preference) and preference[-1][0] != DEFERRED
                        break
            before: tuple[Preference, ...] = ()
            if preferred or decision.settled is None or decision.linear:
                key = after or decision.no_result_preferences, every
                before = decision.preferences.get(key) or operand_preferences(layouts, decision,
                                                                              *key, preferred)
            elif not preferences:
                continue
            later: tuple[Preference, ...] = ()
            for i, v in enumerate(read):
                preference: Preference = before[i] if before else ()
                if v in preferences:
                    others = preferences[v]
                    if others:
                        later = later or decision.no_preferences
                        later = (*later[:i], others, *later[i + 1:])
                elif not preference:
                    continue
                elif last[v] == k:
                    preferences[v] = preference
                    continue
                else:                                 # others read it as it is
                    others = ()
                preferences[v] = layouts.combined_preference(decision.var_kinds[i],
                                                             decision.var_homes[i], preference,
                                                             others, every)
            if after or later:
                reader_preferences[k] = after, preferred, later

    # -- forward: clusters -----------------------------------------------------------------------

    def _search(self) -> None:
        """Fill `found`, first part first. A settled part keeps its decision, one with a single
        transition takes that, and any other goes to `_step`.
        """
        base, clusters, last, found = self.base, self.clusters, self.last, self.found
        k = -1
        for (decision, read, made), (wanted, preferred, _) in zip(  # noqa: B905 (speed)
                self.parts, self.reader_preferences):
            k += 1
            # whether no reader prefers a result in another layout than its type says
            calm = decision.settled is not None and not preferred
            home, undecided = calm, False
            if base or clusters:
                for v in read:
                    if v in clusters:
                        undecided, home = True, False
                        break
                    if v in base:
                        home = False
            if home:
                found[k] = decision
                if decision.rest:
                    continue
                operands, results = decision.settled                        # type: ignore[misc]
            else:
                held = () if undecided else self._layouts_of(decision, read)
                if calm and held == decision.at_home:
                    found[k] = decision
                    operands, results = decision.settled                    # type: ignore[misc]
                else:
                    only = None if undecided else self._only_transition(k, wanted, held)
                    if only is None:
                        self._step(k)
                        continue
                    _, found[k], operands, results = only
            for v, now, at_home in zip(read, operands, decision.at_home):  # noqa: B905 (speed)
                if now != at_home and last[v] != k:
                    base[v] = now
                elif v in base:
                    del base[v]
            if results != decision.results:
                for v, n, own in zip(made, results, decision.results):  # noqa: B905 (speed)
                    if n != own and v in last:
                        base[v] = (n,)
        self._finish()

    def _layouts_of(self, decision: Decision, read: Sequence[Var]) -> tuple[LayoutIds, ...]:
        """The layouts of the variables of a part; None unless all are decided."""
        base = self.base
        return tuple([base[v] if v in base else own
                      for v, own in zip(read, decision.at_home)])  # noqa: B905 (speed)

    def _repeats(self, read: Sequence[Var]) -> tuple[int, ...]:
        return tuple([self.repeats.get(v, 1) for v in read])

    def _only_transition(self, k: int, wanted: tuple[Preference, ...], held: tuple[LayoutIds, ...]
                         ) -> Transition | None:
        """The only transition of a part that reads no cluster; None if there are several."""
        decision, read, _ = self.parts[k]
        last = self.last
        found = transitions(self.layouts, decision, wanted or decision.no_result_preferences,
                            self._repeats(read) if self.repeats else (),
                            tuple([last[v] == k for v in read]), self.budget.transitions)[held]
        return found[0] if len(found) == 1 else None

    def _step(self, k: int) -> None:
        """Add part k to the clusters that it reads, as one cluster (`clusters.step`).

        Values on which all that is left agrees go back to `base`; a cluster of one possibility is
        decided at once.
        """
        decision, read, made = self.parts[k]
        wanted, _, later = self.reader_preferences[k]
        base, last, clusters = self.base, self.last, self.clusters
        merged: list[_Cluster] = []
        sources: tuple[tuple[int, LayoutIds | int], ...] = ()
        ends: tuple[bool, ...] = ()
        for v, own in zip(read, decision.at_home):  # noqa: B905 (speed)
            end = last[v] == k
            ends += (end,)
            if v in clusters:
                cluster, place = clusters[v]
                del clusters[v]
                if cluster not in merged:
                    merged.append(cluster)
                sources += ((merged.index(cluster), place),)
            elif v in base:
                sources += ((READ, base[v]),)
                if end:
                    del base[v]
            else:
                sources += ((READ, own),)
        key = (decision, tuple([c.content for c in merged]), sources, ends,
               tuple([v not in last for v in made]), later or decision.no_preferences, wanted
               or decision.no_result_preferences, self._repeats(read) if self.repeats else (),
               self.budget)
        memo = self.layouts.memo
        after = memo.get(key)
        if after is None:
            after = memo[key] = step(self.layouts, decision, StepContext(*key[1:]))
        for (c, place), held in after.agreed:
            v = (read[place] if c == READ else made[place] if c == MADE
                 else merged[c].variables[place])
            if v in clusters:
                del clusters[v]
            base[v] = held
        cluster = _Cluster(k, merged, after)
        if after.content is None:
            self._take(cluster, 0)
            return
        for place, (c, at) in enumerate(after.values):
            v = read[at] if c == READ else made[at] if c == MADE else merged[c].variables[at]
            cluster.variables.append(v)
            if v in base:
                del base[v]
            clusters[v] = cluster, place

    def _take(self, cluster: _Cluster, row: int) -> None:
        """Record the strategies that led to a row."""
        stack, found = [(cluster, row)], self.found
        while stack:
            at, i = stack.pop()
            after = at.after
            found[at.part] = after.strategies[i]
            stack += zip(at.merged, after.parents[i])  # noqa: B905 (speed)

    def _finish(self) -> None:
        """Decide the remaining equations by the cost of bringing results to their required layouts.
        """
        results: dict[Var, int] = {}
        for k, v in enumerate(self.program.outvars):
            if isinstance(v, Var) and k not in self.free:
                results.setdefault(v, k)
        for cluster in dict.fromkeys([cluster for cluster, _ in self.clusters.values()]):
            content = cluster.content
            best = min(range(len(content.rows)), key=lambda i: content.costs[i] + sum(
                [self._finish_cost(results[v], value.kind, value.home, held) for v, value, held in
                 zip(cluster.variables, content.values, content.rows[i], strict=True)
                 if v in results]))
            self._take(cluster, best)

    def _finish_cost(self, result: int, kind: int, home: int, held: LayoutIds) -> int:
        cost, source = self.layouts.nearest(kind, held, home)
        if cost and self.layouts.table[source][1]:
            if self.trips is None:
                self.trips = self.sum_trips()
            cost //= self.trips.get(result, 1)
        return cost


def _merged(eqn: Equation, members: Sequence[SubDecision],
            strategies: Sequence[Strategy | Decision | None]) -> StrategySpec | None:
    """The strategies of an equation's parts as one."""
    count = len(eqn.invars)
    axes_of: dict = {}
    layouts: list = [()] * (count + len(eqn.outvars))
    cost = 0
    for member, strategy in zip(members, strategies, strict=True):
        if strategy is None:
            return None
        spec = strategy.spec
        axes_of.update(spec.axes_of)
        for i, entries in zip((*member.operands, *(count + k for k in member.results)),
                              spec.layouts, strict=True):
            layouts[i] = entries
        cost += spec.cost
    return StrategySpec(axes_of, tuple(layouts), (frozenset(),) * count, frozenset(), (), cost)


class WideSearch(LookaheadSearch):
    """A `LookaheadSearch` of longer programs that is as wide as that of short ones."""

    budgets = ((math.inf, BUDGETS[0][1]),)
