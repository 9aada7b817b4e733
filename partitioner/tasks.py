"""Tasks: what there is to decide about an equation, and the ways of running it.

Equations that agree in rule, shapes, layouts and in what may be moved are one task, so repeated
layers share all that is found out about the first. A task whose layouts agree as propagation left
them, and that moves and sums nothing then, is *settled*: while its operands are where propagation
has them, and no reader would like a result elsewhere, nothing needs to be looked for.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..ir.ops.sharding import reshard_p
from ..ir.program import Atom, Equation, Literal
from ..ir.rule import PASS, FactorRule
from ..ir.types import ArrayType
from .alternatives import is_nonzero_constant, sums_through
from .choose import Choice
from .factors import Axes, RuleInfo, rule_info
from .layouts import Goal, Held, Layouts
from .options import Option, Table
from .origins import Origins
from .prices import parts_of
from .ways import Way, ways_of

_EMPTY: frozenset[str] = frozenset()
_RANGE = tuple(range(64))


# An option where its variables were held in something: its price with that of bringing them to it,
# itself (None where there is none), what they are held in then, and what the results are.
Outcome = tuple[int, Option | None, tuple[Held, ...], Held]


class Task:
    """What is to be decided about one equation, or a part of it that shares no dimension with the
    rest; one per case, told apart by identity.

    places: position of each operand among the distinct variables, -1 for literals; read: where each
    of these stands first, None where every operand is another one. sums: per
    operand, axes over which its type makes the equation pass a sum on. linear: operand sets through
    which other sums may pass. pinned: per result, whether it must end as its type says. needs: per
    variable the layout that it is taken in in any case, or (); without a table there are no other
    options. settled: what variables and results are held in where all are as propagation has them
    and nothing is moved, or None; rest: whether that is as it has them; at_rest: and no sum may
    pass.
    """

    __slots__ = ("alone", "at_rest", "goals", "homes", "info", "kinds", "layouts", "linear",
                 "needs", "outcomes", "pinned", "places", "read", "rest", "results", "settled",
                 "sums", "table", "var_homes", "var_kinds", "way")

    table: Table

    def __init__(self, layouts: Layouts, info: RuleInfo | None, kinds: tuple[int, ...],
                 homes: Held, places: tuple[int, ...], sums: tuple[frozenset[str], ...],
                 linear: tuple[tuple[int, ...], ...], pinned: tuple[bool, ...], needs: Held
                 ) -> None:
        self.layouts, self.info, self.kinds, self.homes = layouts, info, kinds, homes
        self.places, self.sums, self.linear = places, sums, linear
        self.pinned, self.needs = pinned, needs
        count = len(places)
        if places == _RANGE[:count]:
            self.read, self.var_kinds, self.var_homes = None, kinds[:count], homes[:count]
        else:
            first = {p: i for i, p in reversed(list(enumerate(places))) if p >= 0}
            self.read = read = tuple([first[p] for p in range(len(first))])
            self.var_kinds = tuple([kinds[i] for i in read])
            self.var_homes = tuple([homes[i] for i in read])
        self.alone = tuple([(n,) for n in self.var_homes])     # each held as propagation has it
        self.results = homes[count:]
        self.outcomes: dict[tuple, Any] = {}                   # see outcomes.py
        self.goals: dict[tuple[tuple[Goal, ...], bool], tuple[Goal, ...]] = {}
        self.way: Way | None = None
        self.settled: tuple[tuple[Held, ...], Held] | None = (
            self._settled(info) if info is not None else None)
        self.rest = self.settled is not None and self.settled[0] == self.alone
        self.at_rest = self.rest and not linear

    def __getattr__(self, name: str) -> Table:
        """The table is made when it is first asked for: most settled tasks need none."""
        if name != "table":
            raise AttributeError(name)
        layouts, info = self.layouts, self.info
        assert info is not None
        table = layouts.memo.get((info, self.kinds))
        if table is None:
            table = layouts.memo[info, self.kinds] = Table(layouts, info, self.kinds)
        self.table = table
        return table

    @property
    def choice(self) -> Choice:
        """The choice of a settled task, which is seldom asked for: its equation stays as it is."""
        table = self.table
        if self.way is None:
            home = dict(zip(table.maps, self.homes, strict=True)).get(0)    # of all of them
            pairs = () if home is None else table.ways.part(0, home)[0]
            self.way = table.ways.way(dict(pairs))
        return table.option(self.way, self.sums).choice        # type: ignore[union-attr]

    def _settled(self, info: RuleInfo) -> tuple[tuple[Held, ...], Held] | None:
        """What variables and results are held in where nothing is moved, all values being where
        propagation has them; None if something must be.
        """
        homes, layouts, count = self.homes, self.layouts, len(self.places)
        if self.needs or any(self.sums) or any([layouts.table[n][1] for n in homes]):
            return None
        ways = ways_of(layouts, info)
        tensors = [(ways.maps[dims], n) for dims, n in zip(info.maps, homes)]  # noqa: B905 (speed)
        if ways.alike:
            here = {n: kind for (m, n), kind in zip(tensors, self.kinds) if not m}  # noqa: B905
            if len(here) < 2:       # what has dimensions is laid out in one way: is it divided?
                for home, kind in here.items():
                    shape = layouts.shapes[kind][0]
                    for n, names in zip(shape, layouts.table[home][0]):  # noqa: B905 (speed)
                        if names and n % parts_of(layouts.mesh, names):
                            return None
                return self.alone, homes[count:]
        axes_of: dict[int, Axes] = {}
        for m, home in tensors[count:]:
            axes, overflow = ways.part(m, home)
            if overflow:
                return None
            for f, names in axes:
                if f not in axes_of:
                    if info.factors[f].kind != PASS or not info.split_ok[f]:
                        return None
                    axes_of[f] = names
                elif axes_of[f] != names:
                    return None
        for m, home in tensors[:count]:
            axes, overflow = ways.part(m, home)
            if overflow:
                return None
            for f, names in axes:
                if f not in axes_of or (axes_of[f] != names
                                        and axes_of[f][:len(names)] != names):
                    return None
        used = [a for names in axes_of.values() for a in names]
        if len(set(used)) != len(used):
            return None
        self.way = ways.way({f: axes_of[f] for f in sorted(axes_of)})
        option = self.table.option(self.way, self.sums)
        if option is None or option.received or option.results != homes[count:]:
            return None
        needs = option.needs
        if needs == homes[:count]:
            return self.alone, homes[count:]
        held: list[Held] = list(self.alone)
        for place, need, kind in zip(self.places, needs, self.kinds, strict=False):
            if place >= 0 and need not in held[place]:
                price, held[place] = layouts.moved[kind, held[place], need]
                if price:
                    return None
        return tuple(held), homes[count:]


def declared_sums(types: Sequence[ArrayType], operands: int) -> tuple[frozenset[str], ...]:
    """Per operand the axes over which the equation passes its sum on, as the types say."""
    if len(types) != operands + 1:           # which result is pending over what is not said
        return (_EMPTY,) * operands
    wanted = types[-1].sharding.spec.unreduced
    return tuple([t.sharding.spec.unreduced & wanted for t in types[:operands]])


class Member(NamedTuple):
    """A part of an equation: its task, and which of the operands and results belong to it."""
    task: Task
    operands: tuple[int, ...]
    results: tuple[int, ...]


class Tasks:
    """Makes the tasks of equations. origins: None where all values stay as typed."""

    def __init__(self, layouts: Layouts, origins: Origins | None) -> None:
        self.layouts = layouts
        # over Explicit axes no value is free
        self.origins = origins if origins is None or origins.may_be_free else None
        self.constants: dict[tuple[ArrayType, object], int] = {}

    def of(self, eqn: Equation) -> tuple[Member, ...]:
        """The parts of an equation; one for most."""
        op, free, origins = eqn.op, None, self.origins
        if origins is not None:
            free = origins.are_free(eqn.outvars)
        types = eqn.known_types or eqn.types
        places = self._places(eqn.invars)
        key = op if op.subprograms else eqn.use.identity, types, places, free
        memo = self.layouts.memo
        if key in memo:
            return memo[key]
        operands, results = types
        found = memo[key] = self._members(eqn, (*operands, *results), places,
                                          free or (False,) * len(results))
        return found

    def _places(self, atoms: tuple[Atom, ...]) -> tuple[int, ...]:
        """Per operand its number among the distinct variables; -1 for zeros and what is no number,
        -2 for other constants.
        """
        seen: dict[Atom, int] = {}
        places: tuple[int, ...] = ()
        count = 0
        for a in atoms:
            if a.__class__ is Literal:
                key = a.aval, a.val                              # type: ignore[union-attr]
                if key not in self.constants:
                    self.constants[key] = -2 if is_nonzero_constant(a) else -1
                places += (self.constants[key],)
            elif a in seen:
                places += (seen[a],)
            else:
                places += (count,)
                seen[a] = count
                count += 1
        return places

    def _members(self, eqn: Equation, types: tuple[ArrayType, ...], places: tuple[int, ...],
                 free: Sequence[bool]) -> tuple[Member, ...]:
        count, op = len(places), eqn.op
        if -2 in places:
            places = tuple([p if p > -2 else -1 for p in places])
        whole = tuple(range(count)), tuple(range(len(free)))
        if op is reshard_p or op.subprograms:
            # a reshard takes its operand as its result is
            taken = types[count:] if op is reshard_p else types[:count]
            return (Member(self._task(None, types, places, (), (), (True,) * len(free), taken),
                           *whole),)
        rule = eqn.use.rule(*eqn.types)
        sums, waiting = (_EMPTY,) * count, bool(op.effect)
        if any([t.sharding.spec.unreduced for t in types]):
            waiting, sums = True, declared_sums(types, count)
            if self.layouts.joint is not None:
                sums = tuple([self.layouts.joint.joined((), s)[1] for s in sums])
        pinned = tuple([waiting or not f for f in free])
        linear = () if all(pinned) else sums_through(eqn)
        groups = groups_of(rule) if len(free) > 1 and not waiting else ()
        if len(groups) < 2:
            return (Member(self._task(rule, types, places, sums, linear, pinned,
                                      types[:count] if op.effect else ()), *whole),)
        return tuple([Member(self._task(
            part_of(rule, operands, results),
            [*(types[i] for i in operands), *(types[count + k] for k in results)],
            _renumbered([places[i] for i in operands]), tuple([sums[i] for i in operands]),
            linear, tuple([pinned[k] for k in results]), ()),
            operands, results) for operands, results in groups])

    def _task(self, rule: FactorRule | None, types: Sequence[ArrayType], places: tuple[int, ...],
              sums: tuple[frozenset[str], ...], linear: tuple[tuple[int, ...], ...],
              pinned: tuple[bool, ...], taken: Sequence[ArrayType]) -> Task:
        """taken: the types that operands are taken in in any case."""
        layouts = self.layouts
        kinds_of, homes_of = layouts.kinds_of, layouts.homes
        needs: Held = ()
        if taken:
            needs = tuple({p: homes_of[t] for p, t in zip(places, taken, strict=False)
                           if p >= 0}.values())
        key = (None if rule is None else rule_info(rule), tuple([kinds_of[t] for t in types]),
               tuple([homes_of[t] for t in types]), places, sums, linear, pinned, needs)
        found = layouts.memo.get(key)
        if found is None:
            found = layouts.memo[key] = Task(layouts, *key)
        return found


def _renumbered(places: Sequence[int]) -> tuple[int, ...]:
    seen: dict[int, int] = {}
    return tuple([p if p < 0 else seen.setdefault(p, len(seen)) for p in places])


def groups_of(rule: FactorRule) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(operands, results) that share no factor with others; one group unless all factors pass."""
    found = rule.memo.get("groups")
    if found is None:
        found = rule.memo["groups"] = _groups(rule)
    return found


def _groups(rule: FactorRule) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    count = len(rule.operands)
    maps = rule.operands + rule.results
    whole = [(tuple(range(count)), tuple(range(len(rule.results))))]
    if any([f.kind != PASS for f in rule.factors]):
        return whole
    leader = list(range(len(maps)))
    first: dict[int, int] = {}

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = i = leader[leader[i]]
        return i

    for i, dims in enumerate(maps):
        for f in {f for d in dims for f in d}:
            leader[find(i)] = find(first.setdefault(f, i))
    groups: dict[int, tuple[list[int], list[int]]] = {}
    for i in range(len(maps)):
        group = groups.setdefault(find(i), ([], []))
        group[i >= count].append(i - count if i >= count else i)
    return [(tuple(a), tuple(b)) for a, b in groups.values()]


def part_of(rule: FactorRule, operands: tuple[int, ...], results: tuple[int, ...]) -> FactorRule:
    """The rule of these operands and results alone; factors keep their numbers."""
    key = ("part", operands, results)
    found = rule.memo.get(key)
    if found is None:
        found = rule.memo[key] = FactorRule(tuple([rule.operands[i] for i in operands]),
                                            tuple([rule.results[k] for k in results]),
                                            rule.factors)
    return found
