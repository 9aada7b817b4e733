"""The roles of dimensions: the batch, the sequence, and the dimensions of parameters.

Dimensions of groups that share a factor in some equation form one *class*: all batch dimensions are
one, for example. Roles are read off the program. The batch takes part in nearly all products,
occurs in few of the arguments, and is the first dimension where it does; the sequence is alike, but
comes second. The named plans (named_plans.py) are built from these roles.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from ..ir.program import Var
from ..ir.rules.factor import REDUCE
from ..ir.support.disjoint_sets import DisjointSets
from ..partitioner.cost.work import equation_flops
from ..partitioner.factors import RuleInfo
from .model.groups import Group, Groups, Occurrence

COVERED = 0.5              # share of all operations that a batch takes part in


class Roles:
    """The classes of a program. of: for each group, the class of each dimension; covered: for each
    class, the share of operations of products in which it takes part; summed: for each class, the
    elements of the results of products that contract it, partial sums where it is split; arguments:
    for each class, the arguments that have it. batch, sequence: classes, in the order in which they
    first occur in values; None where there is none. inner_classes: the classes that tensor
    parallelism splits, one for each parameter, among those that a mesh axis of size `least` divides
    (and never the rows of a kernel).
    """

    def __init__(self, groups: Groups, least: int) -> None:
        self.groups = groups
        every = list(dict.fromkeys(groups.of.values()))
        ends = [0, *itertools.accumulate([len(g.sizes) for g in every])]
        self.start: dict[Group, int] = dict(zip(every, ends, strict=False))
        factors = [(use, self._dims(use, use.info)) for use in groups.between
                   if use.info is not None]
        leaders = _merged(ends[-1], [own for use, dims in factors for own, flows in zip(
            dims, use.info.flows, strict=True) if flows and own])       # type: ignore[union-attr]
        self.of: dict[Group, tuple[int, ...]] = {
            g: tuple(leaders[self.start[g]:self.start[g] + len(g.sizes)]) for g in every}
        self.covered = _covered([(use, {leaders[i] for own in dims for i in own})
                                 for use, dims in factors])
        self.summed = _summed([(use, {leaders[i] for own, factor in zip(
            dims, use.info.factors, strict=True) if factor.kind == REDUCE      # type: ignore
            for i in own}) for use, dims in factors])
        self.arguments: dict[int, set[int]] = {}
        for i, v in enumerate(groups.program.invars):
            for c in {*self.classes(v)}:
                self.arguments.setdefault(c, set()).add(i)
        self.batch, self.sequence = self._batches()
        self.outer = {c for g in every if g.holds_argument and self.is_data(g) for c in self.of[g]}
        parameters = [g for g in every if g.holds_argument and not self.is_data(g)
                      and len(g.sizes) - len(g.closed) > 1]
        self.inner_classes = {self.of[g][d] for g in parameters for d in self.inner(g, [least])[:1]}

    def _dims(self, use: Occurrence, info: RuleInfo) -> list[set[int]]:
        """For each factor of an equation the dimensions of groups that it splits, numbered."""
        groups, atoms = self.groups, (*use.equation.invars, *use.equation.outvars)
        dims: list[set[int]] = [set() for _ in info.factors]
        for t, place in enumerate(info.places):
            a = atoms[t]
            if isinstance(a, Var):
                for f, d, _ in place:
                    own = groups.dims[a][d]
                    # of a dimension of several factors, the first is what splits it
                    if own >= 0 and info.maps[t][d][0] == f:
                        dims[f].add(self.start[groups.of[a]] + own)
        return dims

    def _batches(self) -> tuple[int | None, int | None]:
        """(The class of the batch, the class of the sequence), None where there is none: classes of
        nearly all products, ordered by how few arguments have them and how early they come in
        shapes.
        """
        places: dict[int, list[int]] = {}
        for v in self.groups.of:
            for d, c in enumerate(self.classes(v)):
                if c >= 0:
                    places.setdefault(c, []).append(d)
        count = len([v for v in self.groups.program.invars if v.aval.shape])
        found = [c for c, share in self.covered.items() if share >= COVERED]
        own = {c: self.arguments.get(c, set()) for c in found}
        ins, outs = ({self.groups.of[v] for v in some if isinstance(v, Var)} for some in (
            self.groups.program.invars, self.groups.program.outvars))
        kept = {c for g in ins & outs for c in self.of[g]}       # what a step gives back: no batch
        found.sort(key=lambda c: (2 * len(own[c]) > count, c in kept, -round(self.covered[c], 1),
                                  sum(places[c]) / len(places[c]), c))
        if not found or len(own[found[0]]) == count:
            return None, None
        batch = found[0]
        behind = [c for c in found[1:] if own[c] <= own[batch]]
        return batch, behind[0] if behind else None

    def classes(self, v: Var) -> tuple[int, ...]:
        """The class of each dimension of a value; -1 for those of size one."""
        own = self.of[self.groups.of[v]]
        return tuple([own[d] if d >= 0 else -1 for d in self.groups.dims[v]])

    def is_data(self, group: Group) -> bool:
        """Does the value have the batch or the sequence?"""
        return any(c in self.of[group] for c in (self.batch, self.sequence) if c is not None)

    def inner(self, group: Group, sizes: Sequence[int]) -> list[int]:
        """The dimensions of a parameter, in the order in which tensor parallelism would split them:
        first those of a class that no data has and that leaves the fewest partial sums. sizes: the
        product of these must divide the dimension.
        """
        parts = math.prod(sizes)
        found = [d for d, n in enumerate(group.sizes)
                 if d not in group.closed and n % parts == 0]
        return sorted(found, key=lambda d: (
            self.of[group][d] in self.outer, self.summed.get(self.of[group][d], 0), d))


def _merged(count: int, sets: Iterable[set[int]]) -> list[int]:
    """For each number below `count` the leader of its class, where each set is in one class."""
    classes = DisjointSets[int]()
    for own in sets:
        classes.join(*sorted(own))
    return list(map(classes.of, range(count)))


def _covered(occurrences: Iterable[tuple[Occurrence, set[int]]]) -> dict[int, float]:
    """Per class the share of the operations of products that it takes part in."""
    found: dict[int, float] = {}
    total = 0.0
    for use, classes in occurrences:
        if use.info is not None and use.info.is_product:
            flops = equation_flops(use.equation) * use.runs
            total += flops
            for c in classes:
                found[c] = found.get(c, 0.0) + flops
    return {c: n / max(total, 1.0) for c, n in found.items()}


def _summed(occurrences: Iterable[tuple[Occurrence, set[int]]]) -> dict[int, int]:
    """Per class the elements of the results of products in which it is contracted."""
    found: dict[int, int] = {}
    for use, classes in occurrences:
        if use.info is not None and use.info.is_product:
            size = math.prod(use.equation.outvars[0].aval.shape) * use.runs
            for c in classes:
                found[c] = found.get(c, 0) + size
    return found
