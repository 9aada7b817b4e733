"""Groups: sets of values that share one layout, across a program and the programs inside it.

A layout need not be chosen for every value. Elementwise equations compute on operands in the same
layout, a loop keeps the layout of what it carries, and a mean or a broadcast follows the value that
it reduces or repeats. So values whose dimensions correspond form one group, with one set of
dimensions. Layouts can change only at the equations between groups (model.py): products, reshapes,
gathers.

The input is the traced program with its calls inlined. In `h = tanh(x @ w) + b` the product, `tanh`
and the sum are one group over (rows, columns); `x`, `w` and `b` are groups of their own, since an
argument never joins a group larger than itself.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from ...ir.program import Equation, Program, Var
from ...ir.rules.factor import PASS, REDUCE
from ...ir.support.named_tuple import NamedTuple
from ...partitioner.choice.decisions import groups_of
from ...partitioner.factors import RuleInfo, rule_info
from ...partitioner.regions import has_region, region_of, trips_of
from ...report.reasons.value_paths import Path, inner_programs


class Occurrence(NamedTuple):
    """An equation at its place. program: the one that holds it; path, number: its place there;
    runs: how often it runs; outside: how often the innermost loop around it runs; invariant: the
    values that are the same in all iterations of that loop.
    """
    equation: Equation
    program: Program
    path: Path
    number: int
    runs: int
    outside: int
    invariant: frozenset[Var]

    @property
    def info(self) -> RuleInfo | None:
        """The equation's factors; None if it has no rule or holds programs."""
        eqn = self.equation
        if eqn.op.subprograms or eqn.op.collective:
            return None
        return rule_info(eqn.instance.rule(*eqn.types))


def occurrences(program: Program, path: Path = (), runs: int = 1, outside: int = 1,
                invariant: frozenset[Var] = frozenset()) -> Iterator[Occurrence]:
    """Every equation of a program and of the programs inside it; an equation precedes those it
    holds.
    """
    for n, eqn in enumerate(program.eqns):
        yield Occurrence(eqn, program, path, n, runs, outside, invariant)
        if not has_region(eqn):
            continue
        region = region_of(eqn)
        for step, inner in inner_programs(eqn, n):
            yield from occurrences(inner, (*path, step), runs * trips_of(region), runs,
                                   region.invariants(inner))


class Group:
    """Values with one layout. sizes: of its dimensions; closed: dimensions that no axis may split;
    members: its values. holds_argument: whether an argument or a result of the program is a member.
    """

    __slots__ = ("closed", "holds_argument", "members", "sizes")

    def __init__(self, var: Var, sizes: tuple[int, ...]) -> None:
        self.members, self.sizes = [var], sizes
        self.closed: frozenset[int] = frozenset()
        self.holds_argument = False


class Groups:
    """The groups of a program. of: the group of each value; dims: for each value, the dimension of
    the group for each of its own, -1 for dimensions of size one. between: the equations whose
    operands and results are in several groups, or correspond in another way than in their group;
    within: all others.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.of: dict[Var, Group] = {}
        self.dims: dict[Var, tuple[int, ...]] = {}
        self.between: list[Occurrence] = []
        self.within: list[Occurrence] = []
        for v in (*program.invars, *program.outvars):
            if isinstance(v, Var):
                self.add(v).holds_argument = True
        every = list(occurrences(program))
        for use in every:
            for a in (*use.equation.invars, *use.equation.outvars):
                if isinstance(a, Var):
                    self.add(a)
        for use in every:
            if has_region(use.equation):
                self._regions(use.equation)
        waiting = []
        for use in every:
            info = use.info
            if info is None:
                if not has_region(use.equation):
                    self.between.append(use)
            elif info.simple and not info.has_other_kinds and self._unite(use, info):
                self.within.append(use)
            else:
                waiting.append(use)
        for use in waiting:
            info = use.info
            assert info is not None
            (self.within if self._follows(use, info) else self.between).append(use)

    def add(self, var: Var) -> Group:
        """The group of a value, a new one if it has none."""
        found = self.of.get(var)
        if found is None:
            shape = var.aval.shape
            sizes = tuple([n for n in shape if n != 1])
            found = self.of[var] = Group(var, sizes)
            count = iter(range(len(sizes)))
            self.dims[var] = tuple([-1 if n == 1 else next(count) for n in shape])
        return found

    def join(self, one: Var, other: Var, pairs: Sequence[tuple[int, int]]) -> bool:
        """Put two values into one group, with these dimensions identified; returns whether they are
        in one.
        """
        first, second = self.add(one), self.add(other)
        own, theirs = self.dims[one], self.dims[other]
        same = [(own[a], theirs[b]) for a, b in pairs if own[a] >= 0 or theirs[b] >= 0]
        if first is second:
            return all(a == b for a, b in same)
        if any(a < 0 or b < 0 or first.sizes[a] != second.sizes[b] for a, b in same):
            return False
        if len(second.sizes) > len(first.sizes):
            first, second = second, first
            same = [(b, a) for a, b in same]
        onto = {b: a for a, b in same}
        if len(onto) < len(second.sizes) or len(set(onto.values())) < len(onto):
            return False
        for v in second.members:
            self.of[v] = first
            self.dims[v] = tuple([-1 if d < 0 else onto[d] for d in self.dims[v]])
        first.members += second.members
        first.closed |= {onto[d] for d in second.closed}
        first.holds_argument = first.holds_argument or second.holds_argument
        return True

    def _regions(self, eqn: Equation) -> None:
        """What goes into a loop or branch, its parameter, result, and what comes out, are one."""
        region = region_of(eqn)
        for slot in region.slots:
            outer = [a for a in ((eqn.invars[slot.operand] if slot.operand >= 0 else None),
                                 (eqn.outvars[slot.result] if slot.result >= 0 else None))
                     if isinstance(a, Var)]
            inner = [a for a in region.body_atoms(slot) if isinstance(a, Var)]
            if slot.stacked:
                for v in outer:
                    group = self.add(v)
                    if self.dims[v][0] >= 0:
                        group.closed |= {self.dims[v][0]}
            values = [*inner, *outer]
            for v in values[1:]:
                first = values[0]
                shift = int(slot.stacked and v in outer) - int(slot.stacked and first in outer)
                start = -min(shift, 0)
                self.join(first, v, [(d, d + shift) for d in range(start, first.aval.ndim)])

    def _unite(self, use: Occurrence, info: RuleInfo) -> bool:
        """Whether the operands and results of an elementwise equation are one group, or one of
        each of its parts that have nothing to do with each other.
        """
        values = dict(_values(use.equation, info))
        count, joined = info.operands, True
        for operands, results in groups_of(info.rule):
            members = [t for t in (*operands, *[count + k for k in results]) if t in values]
            factors = {f for t in members for f in info.carried[t]}
            if any(info.carried[t] != factors for t in members):
                return False
            for t in members[1:]:
                joined &= self.join(values[members[0]], values[t], _pairs(info, members[0], t))
        return joined

    def _follows(self, use: Occurrence, info: RuleInfo) -> bool:
        """Whether the tensors of a reduction or a broadcast follow the largest of them."""
        values = _values(use.equation, info)
        spanning = next(((v, t) for t, v in values if len(info.carried[t]) == len(info.factors)),
                        None)
        if spanning is None or not info.simple or info.is_product or any(
                f.kind not in (PASS, REDUCE) or f.blocked for f in info.factors):
            return False
        whole, at = spanning
        others = [(v, t) for t, v in values if t != at]
        group = self.add(whole)
        for v, _ in others:
            mine = self.add(v)
            small, large = sorted((mine, group), key=lambda g: len(g.sizes))
            if small.holds_argument and len(small.sizes) < len(large.sizes):
                return False
        return all([self.join(whole, v, _pairs(info, at, t)) for v, t in others])


def _values(eqn: Equation, info: RuleInfo) -> list[tuple[int, Var]]:
    """The tensors of an equation that have dimensions, with their positions in its rule."""
    return [(t, a) for t, a in enumerate((*eqn.invars, *eqn.outvars))
            if isinstance(a, Var) and info.places[t]]


def _pairs(info: RuleInfo, one: int, other: int) -> list[tuple[int, int]]:
    """Dimensions of two tensors of a simple rule that have the same factor."""
    at = {f: d for f, d, _ in info.places[one]}
    return [(at[f], d) for f, d, _ in info.places[other] if f in at]


# -- equivalent groups, such as those of equal layers written one after the other ------------------
# Equivalent are groups of equal sizes in the same role in equal equations, whose other groups are
# equivalent in turn, for a few rounds (colour refinement, after Weisfeiler and Lehman). They get
# equal layouts: a repeated block is solved once, and passes values to the next one as it was passed
# its own. Rounds are few, so that a layer does not differ by how far it is from the ends of the
# program.

ROUNDS = 2


def equivalence_classes(groups: Groups, mark: Callable[[Group], Hashable]) -> dict[Group, int]:
    """For each group the number of its equivalence class, in order of first appearance.

    mark: what else distinguishes groups.
    """
    every = list(dict.fromkeys(groups.of.values()))
    colours = _numbered({g: (g.sizes, g.closed, g.holds_argument, mark(g)) for g in every})
    for _ in range(ROUNDS):
        around: dict[Group, dict[Hashable, None]] = {g: {} for g in every}
        for use in groups.between:
            atoms = (*use.equation.invars, *use.equation.outvars)
            places = tuple([(colours[groups.of[a]], groups.dims[a]) if isinstance(a, Var) else None
                            for a in atoms])
            node = (use.equation.instance.identity, use.equation.types, use.runs, places)
            for t, a in enumerate(atoms):
                if isinstance(a, Var):
                    around[groups.of[a]][t, groups.dims[a], node] = None
        colours = _numbered({g: (colours[g], frozenset(around[g])) for g in every})
    return colours


def _numbered(found: dict[Group, Hashable]) -> dict[Group, int]:
    numbers: dict[Hashable, int] = {}
    return {g: numbers.setdefault(key, len(numbers)) for g, key in found.items()}
