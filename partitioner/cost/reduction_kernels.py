"""Kernels of reductions: the equations that XLA's compilers run in one kernel with a reduction.

From the last reduction to the first, a kernel takes in the equations that compute its operands, if
nothing else reads these, and the equation that reads its result, if there is only one: arithmetic
of floats, other reductions, products. Values inside a kernel are never written to memory. After
XLA's LibraryRewriter (github.com/openxla/xla, xla/backends/cpu/transforms/library_rewriter.cc),
which makes kernels of operations on at least 4,096 elements.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from math import prod

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.facts import READS_FUSED, REPEATS
from ...ir.ops.elementwise.arithmetic import div_p
from ...ir.program import Atom, Equation, Var
from ...ir.rules.factor import REDUCE
from ...ir.support.named_tuple import NamedTuple
from .kinds import Kind, info_of, is_product

_LARGE = 4096                   # elements
_PART = 32                      # elements of a dimension


class Fused(NamedTuple):
    """equations: those that run in the kernel of a reduction. inside: values that these kernels do
    not write. results: those that they write.
    """
    equations: set[int]
    inside: set[Var]
    results: set[Var]


def reduction_kernels(eqns: Sequence[Equation], kinds: Sequence[Kind], root: Mapping[Var, Var],
                      readers: Mapping[Atom, Sequence[int]], results: Set[Atom | None]) -> Fused:
    """What runs in kernels of reductions. kinds: of the equations. root: as of buffers. readers: of
    each value. results: of the program.
    """
    found = _Kernels(eqns, kinds, root, readers, results)
    last = {first: max(members) for first, members in found.members.items()}
    written = {eqns[i].outvars[0] for i in last.values()}
    return Fused({*found.of}, {eqns[i].outvars[0] for i in found.of} - written, written)


class _Kernels:
    """of: the kernel of an equation, named by one of its reductions. members: their equations."""

    def __init__(self, eqns: Sequence[Equation], kinds: Sequence[Kind], root: Mapping[Var, Var],
                 readers: Mapping[Atom, Sequence[int]], results: Set[Atom | None]) -> None:
        self.eqns, self.kinds, self.root, self.readers = eqns, kinds, root, readers
        self.makers: dict[Atom, int] = {
            eqn.outvars[0]: i for i, eqn in enumerate(eqns)
            if len(eqn.outvars) == 1 and eqn.outvars[0] not in root}
        self.apart = results | _divisors(eqns, self.makers)
        self.of: dict[int, int] = {}
        self.members: dict[int, list[int]] = {}
        for i in reversed(range(len(eqns))):
            kind = kinds[i]
            if kind.reduction and not kind.elementwise and i not in self.of and self._joins(i):
                self._grow(i)

    def _grow(self, first: int) -> None:
        """Make the kernel of a reduction."""
        self.of[first] = last = first
        self.members[first], new = [first], [first]
        while new:
            new += self._makers(self.eqns[new.pop()], first)
            follower = None if new else self._follower(last)
            if follower is not None:
                last, new = follower, [follower]
                self._add(new, first)

    def _follower(self, last: int) -> int | None:
        """What alone reads the result of the last equation of a kernel, if the kernel takes it:
        one that repeats elements only with what reads that.
        """
        v = self.eqns[last].outvars[0]
        uses = self.readers.get(v, ())
        if v in self.apart or len(uses) != 1 or uses[0] in self.of or not self._joins(uses[0]) or (
                REPEATS in self.eqns[uses[0]].op.facts and self._follower(uses[0]) is None):
            return None
        return uses[0]

    def _makers(self, eqn: Equation, first: int) -> list[int]:
        """Add what makes the operands of an equation of a kernel, if only the kernel reads it."""
        added: list[int] = []
        for a in eqn.invars:
            v = self.root.get(a, a)           # type: ignore[call-overload]
            i = self.makers.get(v) if v not in self.apart else None
            if i is None or self.of.get(i) == first or not (i in self.of or self._joins(i)) or any(
                    [self.of.get(j) != first for j in self.readers[v]]):
                continue
            more = self.members.pop(self.of[i]) if i in self.of else [i]
            self._add(more, first)
            added += more
        return added

    def _add(self, more: list[int], first: int) -> None:
        self.members[first] += more
        self.of.update(dict.fromkeys(more, first))

    def _joins(self, i: int) -> bool:
        """Is it a product, a broadcast, or a reduction or arithmetic of many floats?"""
        eqn, kind = self.eqns[i], self.kinds[i]
        if kind.rearranged or len(eqn.outvars) != 1 or not all(
                [issubdtype(a.aval.dtype, np.floating) for a in (*eqn.invars, *eqn.outvars)]):
            return False
        if kind.elementwise or kind.reduction:
            return kind.generated or _is_large(eqn)
        return is_product(eqn)


def _divisors(eqns: Sequence[Equation], makers: Mapping[Atom, int]) -> set[Var]:
    """Few numbers that many are divided by: their reciprocals are made before, in a kernel of
    their own.
    """
    found = set[Var]()
    for eqn in eqns:
        if eqn.op is not div_p:
            continue
        v = eqn.invars[1]
        while v in makers and REPEATS in eqns[makers[v]].op.facts:
            (v,) = eqns[makers[v]].invars
        if isinstance(v, Var) and prod(v.aval.local_shape()) < min(
                _LARGE, prod(eqn.outvars[0].aval.local_shape())):
            found.add(v)
    return found


def is_split(eqn: Equation, kind: Kind) -> bool:
    """Is it a reduction that XLA splits into one of parts and one of what these give, as it goes
    over more than a part of a dimension? Then it reads its operands from memory. After XLA's
    TreeReductionRewriter (xla/service/tree_reduction_rewriter.cc).
    """
    if kind.elementwise or READS_FUSED in eqn.op.facts:
        return False
    info, shape = info_of(eqn), eqn.invars[0].aval.local_shape()
    return any([info.factors[f].kind == REDUCE and shape[d] > _PART for f, d, _ in info.places[0]])


def _is_large(eqn: Equation) -> bool:
    return any([prod(a.aval.local_shape()) >= _LARGE for a in (*eqn.invars, *eqn.outvars)])
