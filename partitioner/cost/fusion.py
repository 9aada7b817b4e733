"""Fusion as in XLA's CPU compiler: which values are computed inside the kernels that read them.

From the last equation to the first, a value is fused into every kernel that reads it, and is
written to memory unless all of them take it. Expensive values are computed once: they are fused
into one kernel only, and not if that would compute elements repeatedly. A value that several
kernels compute has one large operand or is larger than its operands, or no kernel waits for another
of them. Concatenations of long rows are not fused. A kernel contains an equation once for each
index at which it is read; if that is too often, the value is written to memory. After XLA's
CpuInstructionFusion and FusionNodeIndexingEvaluation (github.com/openxla/xla,
xla/service/cpu/cpu_instruction_fusion.cc, xla/service/fusion_node_indexing_evaluation.cc).
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.facts import PERMUTED, RECOMPUTED, SPLICED, TAKEN, TRANSCENDENTAL
from ...ir.ops.elementwise.arithmetic import div_p
from ...ir.ops.indexing.gather import gather_p
from ...ir.program import Atom, Equation, Literal, Var
from ...ir.support.named_tuple import NamedTuple
from .kinds import Kind

_EMITTED = 15                   # times that a kernel's code holds an equation
_ROW = 128                      # elements of a long row
_KERNELS = 64                   # that compute a value, or that are looked at for one that waits


class Fused(NamedTuple):
    """values: those that no kernel writes. again: (value, equation that reads it) where a kernel
    writes the value for others, and that of the equation computes it once more.
    """
    values: set[Var]
    again: set[tuple[Var, int]]


def fused_values(eqns: Sequence[Equation], kinds: Sequence[Kind], readers: Mapping[Atom, list[int]],
                 reads: Sequence[bool], results: Set[Atom | None], apart: Set[Atom],
                 generated: Set[Atom | None]) -> Fused:
    """What is fused into elementwise operations and reductions. kinds, reads: of the equations,
    whether they can read what is fused. readers: of each value. results: of the program. apart:
    values about which all is known. generated: from what is no array, or from what else is.
    """
    found = _Fusion(eqns, kinds, readers, reads, results, generated)
    for i in reversed(range(len(eqns))):
        if (kinds[i].elementwise or TAKEN in eqns[i].op.facts) and eqns[i].outvars[0] not in apart:
            found.add(i)
    return Fused(found.values, found.again)


class _Fusion:
    """A kernel is named by the equation whose result it writes. users: of an equation that other
    kernels compute, by kernel the equations at whose index it does. emitted: how often the code of
    a kernel holds an equation, but for once. repeated: equations whose results kernels repeat.
    """

    def __init__(self, eqns: Sequence[Equation], kinds: Sequence[Kind],
                 readers: Mapping[Atom, list[int]], reads: Sequence[bool],
                 results: Set[Atom | None], generated: Set[Atom | None]) -> None:
        self.eqns, self.kinds, self.readers, self.reads = eqns, kinds, readers, reads
        self.results, self.generated = results, generated
        self.values, self.again = set[Var](), set[tuple[Var, int]]()
        self.users: dict[int, dict[int, set[int]]] = {}
        self.emitted: dict[tuple[int, int], int] = {}
        self.repeated = set[int]()

    def add(self, i: int) -> None:
        """Fuse the result of equation i into the kernels that take it."""
        v = self.eqns[i].outvars[0]
        uses = [*dict.fromkeys(self.readers.get(v, ()))]
        users = self._users(v, uses)
        repeats = any([j in self.repeated or self.kinds[j].elementwise
                       and SPLICED not in self.eqns[j].op.facts
                       and self.eqns[j].outvars[0].aval.size > v.aval.size for j in uses])
        takers = uses if v in self.generated and all([self.kinds[j].reads for j in uses]) \
            else self._takers(self.eqns[i], uses, users, repeats)
        if len(takers) == len(uses) and v not in self.results:
            self.values.add(v)
        elif takers and self._is_light(self.eqns[i]):
            self.again.update([(v, j) for j in takers])
            users = {**self._users(v, takers), i: {i}}
        else:
            return
        if len(users) > _KERNELS:
            return
        self.users[i] = users
        if repeats:
            self.repeated.add(i)
        for k in users:
            self.emitted[k, i] = self._count(k, users[k])

    def _users(self, v: Var, uses: Iterable[int]) -> dict[int, set[int]]:
        """By kernel that computes one of these equations: at whose index it reads v there."""
        found: dict[int, set[int]] = {}
        for j in uses:
            eqn = self.eqns[j]
            same = PERMUTED in eqn.op.facts or [w.aval.shape for w in eqn.outvars] == [v.aval.shape]
            for k, users in self.users.get(j, {j: {j}}).items():
                found.setdefault(k, set()).update(users if same else {j})
        return found

    def _count(self, kernel: int, users: Iterable[int]) -> int:
        return sum([self.emitted.get((kernel, j), 1) for j in users])

    def _takers(self, eqn: Equation, uses: Sequence[int], users: Mapping[int, set[int]],
                repeats: bool) -> list[int]:
        """The equations among those that read a result whose kernels compute it."""
        v, facts = eqn.outvars[0], eqn.op.facts
        several = len(users) + (v in self.results) > 1
        if len(users) > _KERNELS or _has_long_rows(eqn) or (
                (several or repeats) and self._is_costly(eqn)) or (
                several and not self._is_light(eqn) and self._is_waited_for(users)):
            return []
        full = [k for k, of in users.items() if (n := self._count(k, of)) > _EMITTED
                or SPLICED in facts and max(n, len(uses), len(users)) > 1]
        return [j for j in uses if self.reads[j] and not _has_long_rows(self.eqns[j])
                and not any([k in self.users.get(j, (j,)) for k in full])]

    def _is_costly(self, eqn: Equation) -> bool:
        """Does XLA compute it once? Few numbers that divide many are inverted before."""
        if eqn.op is div_p:
            divisor, v = eqn.invars[1], eqn.outvars[0]
            return issubdtype(v.aval.dtype, np.inexact) and divisor.aval.size == v.aval.size \
                and divisor not in self.generated and not isinstance(divisor, Literal)
        if RECOMPUTED in eqn.op.facts:
            return issubdtype(eqn.outvars[0].aval.dtype, np.complexfloating)
        return TRANSCENDENTAL in eqn.op.facts or eqn.op is gather_p

    def _is_light(self, eqn: Equation) -> bool:
        """Does it read at most one large array, or less than it makes?"""
        large = _rank(eqn.outvars[0])
        return sum([a not in self.generated and _rank(a) >= large for a in eqn.invars]) <= 1 or sum(
            [a.aval.size for a in {*eqn.invars} if isinstance(a, Var)]) <= eqn.outvars[0].aval.size

    def _is_waited_for(self, kernels: Iterable[int]) -> bool:
        """Does one of these kernels wait for another?"""
        new = [*kernels]
        seen, last = {*new}, max(new)
        while new and len(seen) < _KERNELS:
            for v in self.eqns[new.pop()].outvars:
                found = {k for j in self.readers.get(v, ()) for k in self.users.get(j, (j,))}
                if not found.isdisjoint(kernels):
                    return True
                new += [k for k in found - seen if k < last]
                seen |= found
        return False


def _rank(a: Atom) -> int:
    return sum([n > 1 for n in a.aval.shape])


def _has_long_rows(eqn: Equation) -> bool:
    """Does it put rows together from parts, each of which is better copied in one go?"""
    if SPLICED not in eqn.op.facts:
        return False
    shape = eqn.outvars[0].aval.shape
    return len(shape) > 1 and shape[-1] >= _ROW and eqn.params.get("dimension") == len(shape) - 1
