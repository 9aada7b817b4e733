"""Interleaved rows: how a value is brought into that order, and what an op makes of it."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from ....ir.builder import ProgramBuilder
from ....ir.op import OPS
from ....ir.program import Atom, Equation, Program
from ....ir.rules.rule import FactorRule

Rows = Mapping[int, int]        # by dimension that is in this order, the rows of a group


class Order:
    """Brings values into an order of rows, and back. counts: the groups of each part."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = tuple(counts)
        self.total = sum(counts)
        self.starts = (0, *accumulate(counts))

    def parts(self, size: int, group: int, start: int, end: int) -> range | None:
        """The parts that are exactly rows start to end of a dimension of this size; None if there
        are none.
        """
        each = size // self.total
        if not each or each % group or size % self.total:
            return None
        cuts = [s * each for s in self.starts]
        if start not in cuts or end not in cuts or start >= end:
            return None
        return range(cuts.index(start), cuts.index(end))

    def places(self, size: int, group: int) -> np.ndarray:
        """The interleaved rows in order, as positions in the usual order."""
        each = size // self.total
        return np.concatenate([np.arange(a * each, b * each).reshape(-1, (b - a) * group)
                               for a, b in zip(self.starts, self.starts[1:], strict=False)],
                              1).ravel()

    def interleaved(self, out: Emitter, parts: Sequence[Atom], d: int, group: int) -> Atom:
        """The parts with their rows interleaved."""
        apart = []
        for x, count in zip(parts, self.counts, strict=True):
            n = x.aval.shape[d]
            apart.append(out.reshaped(x, d, (n // (count * group), count * group)))
        return out.reshaped(out.concatenated(apart, d + 1), d, (
            sum(x.aval.shape[d] for x in parts),), 2)

    def cut(self, out: Emitter, x: Atom, d: int, group: int) -> Atom:
        """A value whose parts follow each other, with its rows interleaved."""
        each = x.aval.shape[d] // self.total
        return self.interleaved(out, [out.cut(x, d, a * each, b * each) for a, b in zip(
            self.starts, self.starts[1:], strict=False)], d, group)

    def part(self, out: Emitter, x: Atom, d: int, group: int, i: int) -> Atom:
        """A part of a value with interleaved rows."""
        n = x.aval.shape[d]
        apart = out.reshaped(x, d, (n // (self.total * group), self.total * group))
        own = out.cut(apart, d + 1, self.starts[i] * group, self.starts[i + 1] * group)
        return out.reshaped(own, d, (n // self.total * self.counts[i],), 2)

    def back(self, out: Emitter, x: Atom, d: int, group: int) -> Atom:
        """A value with interleaved rows, in the usual order."""
        if {*self.counts} == {1}:
            n, k = x.aval.shape[d], self.total
            turned = out.moved(out.reshaped(x, d, (n // (k * group), k, group)), d + 1, d)
            return out.reshaped(turned, d, (n,), 3)
        return out.concatenated(
            [self.part(out, x, d, group, i) for i in range(len(self.counts))], d)

    def padded(self, out: Emitter, x: Atom, zero: Atom, d: int, group: int, i: int, size: int
               ) -> Atom:
        """A part with zeros in place of all others, interleaved."""
        count, n = self.counts[i], x.aval.shape[d]
        apart = out.reshaped(x, d, (n // (count * group), count * group))
        config = [(0, 0, 0)] * apart.aval.ndim
        config[d + 1] = (self.starts[i] * group, (self.total - self.starts[i + 1]) * group, 0)
        return out.reshaped(out.emit("pad", apart, zero, padding_config=tuple(config)), d,
                            (size,), 2)


class Emitter:
    """Writes equations after those of a walk, at a location."""

    def __init__(self, program: Program, at: Equation) -> None:
        self.builder, self.at = ProgramBuilder(program.mesh, program.level), at

    def emit(self, name: str, *operands: Atom, **params) -> Atom:
        self.builder.mesh = operands[0].aval.mesh        # empty of what no device has yet
        return self.builder.emit(OPS[name], operands, params, location=self.at.location)[0]

    def reshaped(self, x: Atom, d: int, sizes: Sequence[int], of: int = 1) -> Atom:
        """The value with these sizes instead of `of` dimensions from d on."""
        shape = (*x.aval.shape[:d], *sizes, *x.aval.shape[d + of:])
        return x if shape == x.aval.shape else self.emit(
            "reshape", x, new_sizes=shape, dimensions=None, sharding=None)

    def moved(self, x: Atom, source: int, to: int) -> Atom:
        order = [d for d in range(x.aval.ndim) if d != source]
        order.insert(to, source)
        return self.emit("transpose", x, permutation=tuple(order))

    def cut(self, x: Atom, d: int, start: int, end: int) -> Atom:
        bounds = [(start, end) if k == d else (0, n) for k, n in enumerate(x.aval.shape)]
        return self.emit("slice", x, start_indices=tuple([a for a, _ in bounds]),
                         limit_indices=tuple([b for _, b in bounds]), strides=None)

    def concatenated(self, parts: Sequence[Atom], d: int) -> Atom:
        return parts[0] if len(parts) == 1 else self.emit("concatenate", *parts, dimension=d)


def rule_of(eqn: Equation) -> FactorRule | None:
    """The factor rule of an equation; None if the rule does not describe it completely."""
    op = eqn.op
    if op.rule is None or op.subprograms or op.collective is not None or op.effect:
        return None
    return op.factor_rule(tuple([a.aval.shape for a in eqn.invars]),
                          tuple([v.aval.shape for v in eqn.outvars]), eqn.params)


def of_factors(dims: Sequence[Sequence[int]], factors: Mapping[int, int], sizes: Sequence[int]
                ) -> Rows | None:
    """The row order of a value some of whose factors are interleaved; None if such a factor is not
    the first of a dimension.
    """
    found = {}
    for d, own in enumerate(dims):
        if any(f in factors for f in own[1:]):
            return None
        if own and own[0] in factors:
            found[d] = factors[own[0]] * math.prod(sizes[f] for f in own[1:])
    return found
