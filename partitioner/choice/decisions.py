"""Decisions: what there is to decide about an equation.

Equations with the same rule, shapes, layouts and pinned results share one decision, so that what is
worked out for a layer holds for its repetitions. A decision is *settled* if the types that
propagation gave agree and there is neither an exchange nor a partial sum: as long as its operands
are in those layouts and no reader prefers its results in others, there is nothing to search.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Equation, Literal, Var
from ...ir.rules.factor import PASS, REDUCE
from ...ir.rules.rule import FactorRule
from ...ir.support.disjoint_sets import DisjointSets
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType
from ..factors import Axes, RuleInfo, rule_info
from .candidates import Candidate, CandidateTable, candidates_of
from .costs import parts_of
from .layout_costs import LayoutIds, Preference
from .layouts import Answer, LayoutTable
from .sinking import is_nonzero_constant, partial_sum_sets
from .strategies import Strategy, StrategySpec, StrategyTable

_EMPTY: frozenset[str] = frozenset()
_RANGE = tuple(range(64))
_FIRST = (0,)
_FREE = ()          # all results of an equation are


# (cost, including that of bringing variables to it; the strategy, None if there is none; the
# layouts of variables afterwards; the layouts of results).
Transition = tuple[int, Strategy | None, tuple[LayoutIds, ...], LayoutIds]


class Decision(Answer):
    """What is to be decided about one equation, or about a part of it that shares no dimension with
    the rest; one per case, compared by identity.

    places: position of each operand among the distinct variables, -1 for literals; read: where each
    of these stands first, None if all operands are distinct; positions: where each variable stands,
    () if one stands twice. count: number of operands. sums: per operand, the axes over which its
    type makes the equation pass on a partial sum. linear: operand sets through which other partial
    sums may pass. pinned: per result, whether it must end in the layout of its type. needs: per
    variable the layout in which it is always taken, or (); there are no other strategies without a
    rule. homes: the layout that each tensor's type says; at_home: each variable available in that
    alone. settled: the layouts of variables and results if all are at home and nothing moves, or
    None; rest: whether these are the same as at home. no_preferences, no_result_preferences: of
    readers that take values as they are.
    """

    __slots__ = ("at_home", "axes", "count", "preferences", "homes", "info", "kinds", "layouts",
                 "linear", "needs", "no_preferences", "transitions", "pinned", "places", "read",
                 "rest", "results", "settled", "positions", "sums", "table",
                 "no_result_preferences", "var_homes", "var_kinds", "candidate")

    table: StrategyTable
    positions: tuple[int, ...]

    def __init__(self, layouts: LayoutTable, info: RuleInfo | None, kinds: tuple[int, ...],
                 homes: LayoutIds, places: tuple[int, ...], sums: tuple[frozenset[str], ...],
                 linear: tuple[tuple[int, ...], ...], pinned: tuple[bool, ...], needs: LayoutIds
                 ) -> None:
        self.layouts, self.info, self.kinds, self.homes = layouts, info, kinds, homes
        self.places, self.sums, self.linear = places, sums, linear
        self.pinned, self.needs = pinned, needs
        self.count = count = len(places)
        if places == _RANGE[:count]:
            self.read, self.var_kinds, self.var_homes = None, kinds[:count], homes[:count]
            self.positions = places
        else:
            first = {p: i for i, p in reversed(list(enumerate(places))) if p >= 0}
            self.read = read = tuple([first[p] for p in range(len(first))])
            self.var_kinds = tuple([kinds[i] for i in read])
            self.var_homes = tuple([homes[i] for i in read])
            self.positions = read if len([p for p in places if p >= 0]) == len(read) else ()
        self.at_home = tuple([(n,) for n in self.var_homes])
        self.no_preferences: tuple[Preference, ...] = ((),) * len(self.var_homes)
        self.results = homes[count:]
        self.no_result_preferences = ((),) * len(pinned)
        self.transitions: dict[tuple, Any] = {}                   # see transitions.py
        self.preferences: dict[tuple[tuple[Preference, ...], bool], tuple[Preference, ...]] = {}
        self.candidate: Candidate | None = None
        self.axes: set[str] | None = None        # that divide it, see `repeats`
        self.settled: tuple[tuple[LayoutIds, ...], LayoutIds] | None = (
            self._settled(info) if info is not None else None)
        self.rest = self.settled is not None and self.settled[0] == self.at_home

    def forget(self) -> None:
        self.transitions.clear()

    def __getattr__(self, name: str) -> StrategyTable:
        """The strategy table, made on demand: most settled decisions need none."""
        if name != "table":
            raise AttributeError(name)
        layouts, info = self.layouts, self.info
        assert info is not None
        table = layouts.memo.get((info, self.kinds))
        if table is None:
            table = layouts.memo[info, self.kinds] = StrategyTable(layouts, info, self.kinds)
        self.table = table
        return table

    def repeats(self, strategy: Strategy) -> bool:
        """Does a strategy compute on several devices what the types divide between them?

        Work that reduces a dimension is divided by the axes of all its tensors, other work by those
        of its results.
        """
        if self.axes is None:
            info, table = self.info, self.layouts.table
            reduces = info is not None and any([f.kind == REDUCE for f in info.factors])
            homes = self.homes if reduces else self.results
            self.axes = {a for n in homes for axes in table[n][0] for a in axes}
        used = strategy.candidate.axes_of.values()
        return not self.axes.issubset([a for axes in used for a in axes])

    @property
    def spec(self) -> StrategySpec:
        """The strategy of a settled decision, by axis names; seldom needed, since its equation
        stays as it is.
        """
        return self.strategy.spec

    @property
    def strategy(self) -> Strategy:
        """The strategy of a settled decision, in layout numbers."""
        table = self.table
        if self.candidate is None:
            home = dict(zip(table.maps, self.homes, strict=True)).get(0)    # of all of them
            pairs = () if home is None else table.candidates.part(0, home)[0]
            self.candidate = table.candidates.candidate(dict(pairs))
        return table.strategy(self.candidate, self.sums)               # type: ignore[return-value]

    def _settled(self, info: RuleInfo) -> tuple[tuple[LayoutIds, ...], LayoutIds] | None:
        """The layouts of variables and results, if nothing has to move when all values are in the
        layouts of their types; else None.
        """
        homes, layouts, count = self.homes, self.layouts, self.count
        if self.needs or (layouts.waiting and not layouts.waiting.isdisjoint(homes)):
            return None
        candidates = candidates_of(layouts, info)
        tensors = [(candidates.maps[dims], n) for dims, n in zip(info.maps, homes)]  # noqa: B905 (speed)
        if candidates.elementwise:
            same, home, shape = True, -1, ()
            for (m, n), kind in zip(tensors, self.kinds):  # noqa: B905 (speed)
                if not m:
                    same = same and home in (-1, n)
                    home, shape = n, layouts.shapes[kind][0]
            if same:                # what has dimensions is laid out in one way: is it divided?
                if home >= 0:
                    for n, names in zip(shape, layouts.table[home][0]):  # noqa: B905 (speed)
                        if names and n % parts_of(layouts.mesh, names):
                            return None
                return self.at_home, homes[count:]
        axes_of = self._axes_at_home(info, candidates, tensors)
        if axes_of is None:
            return None
        self.candidate = candidates.candidate(axes_of)
        strategy = self.table.strategy(self.candidate, self.sums)
        if strategy is None or strategy.received or strategy.results != homes[count:]:
            return None
        needs = strategy.needs
        if needs == homes[:count]:
            return self.at_home, homes[count:]
        held: list[LayoutIds] = list(self.at_home)
        for place, need, kind in zip(self.places, needs, self.kinds, strict=False):
            if place >= 0 and need not in held[place]:
                cost, held[place] = layouts.moved[kind, held[place]][need]
                if cost:
                    return None
        return tuple(held), homes[count:]

    def _axes_at_home(self, info: RuleInfo, candidates: CandidateTable,
                      tensors: Sequence[tuple[int, int]]) -> dict[int, Axes] | None:
        """The axes of each factor, by number, where all results pass them through and no operand
        has others; else None. tensors: for each operand and result its map and layout.
        """
        axes_of: dict[int, Axes] = {}
        for m, home in tensors[self.count:]:
            axes, overflow = candidates.part(m, home)
            if overflow:
                return None
            for f, names in axes:
                if f not in axes_of:
                    if info.factors[f].kind != PASS or not info.split_ok[f]:
                        return None
                    axes_of[f] = names
                elif axes_of[f] != names:
                    return None
        for m, home in tensors[:self.count]:
            axes, overflow = candidates.part(m, home)
            if overflow:
                return None
            for f, names in axes:
                if f not in axes_of or (axes_of[f] != names
                                        and axes_of[f][:len(names)] != names):
                    return None
        seen: tuple[str, ...] = ()
        last, ordered = -1, True
        for f in axes_of:
            for a in axes_of[f]:
                if a in seen:
                    return None
            seen += axes_of[f]
            ordered = ordered and f > last
            last = f
        return axes_of if ordered else {f: axes_of[f] for f in sorted(axes_of)}


def declared_sums(types: Sequence[ArrayType], operands: int) -> tuple[frozenset[str], ...]:
    """For each operand the axes over which the equation passes its sum on, going by the types."""
    if len(types) != operands + 1:           # whose pending sum is unknown
        return (_EMPTY,) * operands
    wanted = types[-1].sharding.spec.unreduced
    return tuple([t.sharding.spec.unreduced & wanted for t in types[:operands]])


class SubDecision(NamedTuple):
    """A part of an equation: its decision, and the operands and results that belong to it."""
    decision: Decision
    operands: tuple[int, ...]
    results: tuple[int, ...]


# The decision of an equation, or those of its parts.
EquationDecision = Decision | tuple[SubDecision, ...]


class DecisionBuilder:
    """Makes the decisions of equations. fixed: the values that keep the layouts of their types;
    None for all.
    """

    def __init__(self, layouts: LayoutTable, fixed: frozenset[Var] | None) -> None:
        self.layouts, self.fixed = layouts, fixed

    def of(self, eqns: Sequence[Equation]) -> list[EquationDecision]:
        """For each equation its decision, or those of its parts."""
        fixed, memo, found = self.fixed, self.layouts.memo, []
        free = None
        for eqn in eqns:
            op, invars = eqn.op, eqn.invars
            if fixed is not None:
                free = _FREE if fixed.isdisjoint(eqn.outvars) else tuple(
                    [v not in fixed for v in eqn.outvars])
            types = eqn.known_types or eqn.types
            if len(invars) == 1 and invars[0].__class__ is not Literal:
                places = _FIRST
            elif len(invars) == 2 and op.passes_sums != "constants":
                first, second = invars
                if first.__class__ is Literal:
                    places = (-1, 0) if second.__class__ is not Literal else (-1, -1)
                elif second.__class__ is Literal:
                    places = (0, -1)
                else:
                    places = (0, 1) if first is not second else (0, 0)
            else:
                places = _places(invars, op.passes_sums == "constants")
            key = op if op.subprograms else eqn.instance.identity, types, places, free
            members = memo.get(key)
            if members is None:
                members = memo[key] = self._members(
                    eqn, places, free or (free is _FREE,) * len(types[1]))
            found.append(members)
        return found

    def _members(self, eqn: Equation, places: tuple[int, ...], free: tuple[bool, ...]
                 ) -> EquationDecision:
        """The decision of an equation; of one whose factors fall into independent groups, a
        decision for each group. places: as by `_places`. free: for each result, whether any layout
        will do.
        """
        op, (operands, results) = eqn.op, eqn.types
        types = operands + results
        if -2 in places:
            places = tuple([p if p > -2 else -1 for p in places])
        if op is reshard_p or op.subprograms:
            # a reshard takes its operand as its result is
            return self._decision(None, types, places, (), (), (True,) * len(free),
                                  results if op is reshard_p else operands)
        rule = eqn.instance.rule(operands, results)
        sums, waiting = (_EMPTY,) * len(places), bool(op.effect)
        for t in types:
            if t.sharding.spec.unreduced:
                waiting, sums = True, declared_sums(types, len(places))
                if self.layouts.joint is not None:
                    sums = tuple([self.layouts.joint.in_joint_axes((), s)[1] for s in sums])
                break
        if waiting or True not in free:
            pinned, linear = (True,) * len(free), ()
        else:
            pinned, linear = tuple([not f for f in free]), partial_sum_sets(eqn)
        groups = groups_of(rule) if len(free) > 1 and not waiting else ()
        if len(groups) < 2:
            return self._decision(rule_info(rule), types, places, sums, linear, pinned,
                                  operands if op.effect else ())
        return tuple([SubDecision(self._decision(
            rule_info(part_of(rule, some, made)),
            (*[operands[i] for i in some], *[results[k] for k in made]),
            _renumbered([places[i] for i in some]), tuple([sums[i] for i in some]),
            linear, tuple([pinned[k] for k in made]), ()), some, made) for some, made in groups])

    def _decision(self, info: RuleInfo | None, types: tuple[ArrayType, ...],
                  places: tuple[int, ...], sums: tuple[frozenset[str], ...],
                  linear: tuple[tuple[int, ...], ...], pinned: tuple[bool, ...],
                  taken: tuple[ArrayType, ...]) -> Decision:
        """The decision of these properties. taken: the types in which operands are always taken."""
        memo, kinds_of, homes_of = self.layouts.memo, self.layouts.kinds_of, self.layouts.homes
        kinds, homes = tuple([kinds_of[t] for t in types]), tuple([homes_of[t] for t in types])
        needs: LayoutIds = ()
        if taken:
            needs = tuple({p: homes_of[t] for p, t in zip(places, taken, strict=False)
                           if p >= 0}.values())
        key = info, kinds, homes, places, sums, linear, pinned, needs
        if key not in memo:
            memo[key] = Decision(self.layouts, *key)
        return memo[key]


def _places(atoms: tuple[Atom, ...], constants: bool) -> tuple[int, ...]:
    """For each operand its number among the distinct variables; -1 for literals. constants: use -2
    for literals that one may divide by.
    """
    seen: dict[Atom, int] = {}
    places: tuple[int, ...] = ()
    for a in atoms:
        if a.__class__ is Literal:
            places += (-2 if constants and is_nonzero_constant(a) else -1,)
        else:
            places += (seen.setdefault(a, len(seen)),)
    return places


def _renumbered(places: Sequence[int]) -> tuple[int, ...]:
    seen: dict[int, int] = {}
    return tuple([p if p < 0 else seen.setdefault(p, len(seen)) for p in places])


def groups_of(rule: FactorRule) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The (operands, results) that share no factor with others; one group unless all factors pass
    through.
    """
    found = rule.memo.get("groups")
    if found is None:
        found = rule.memo["groups"] = _groups(rule)
    return found


def _groups(rule: FactorRule) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """`groups_of`, not remembered: operands and results that share a factor are in one group."""
    count = len(rule.operands)
    maps = rule.operands + rule.results
    whole = [(tuple(range(count)), tuple(range(len(rule.results))))]
    if any([f.kind != PASS for f in rule.factors]):
        return whole
    classes, first = DisjointSets[int](), dict[int, int]()
    for i, dims in enumerate(maps):
        for f in {f for d in dims for f in d}:
            classes.join(first.setdefault(f, i), i)
    return [(tuple([i for i in group if i < count]),
             tuple([i - count for i in group if i >= count]))
            for group in classes.groups(range(len(maps)))]


def part_of(rule: FactorRule, operands: tuple[int, ...], results: tuple[int, ...]) -> FactorRule:
    """The rule for these operands and results alone; factors keep their numbers."""
    key = ("part", operands, results)
    found = rule.memo.get(key)
    if found is None:
        found = rule.memo[key] = FactorRule(tuple([rule.operands[i] for i in operands]),
                                            tuple([rule.results[k] for k in results]),
                                            rule.factors)
    return found
