"""Which axes stay in place in an equation, so that one evaluation serves all devices along them.

An op treats the elements along a pass-through factor independently, so a dimension with that factor
may be longer than a block: where operands hold their blocks of a factor in place along an axis X,
the op on the whole arrays gives the blocks of the result in place, for the price of the unsharded
program. That holds if

- the factor is the major part of every dimension that carries it, in operands and results;
- every operand with the factor has the same axes there, major to minor in the same order (or is
  uniform along it, and is lengthened); an operand without it does not differ over them.

A reduction factor qualifies for axes over which the result is folded
(runtime/simulation/device_sums.py). All other axes are stacked, which is always correct: evaluators
take leading device dimensions.
"""
from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from ...ir.rules.factor import PASS, REDUCE
from ...ir.rules.rule import FactorRule
from ..layout import Atoms
from .device_sums import Folds
from .workspace import Value

Orders = dict[int, Atoms]        # factor to the axes in place on it, major to minor
NONE: frozenset[str] = frozenset()


def common_orders(rule: FactorRule, operands: Sequence[Value], folds: Mapping[str, frozenset[str]]
                  ) -> Orders:
    """The axes that can stay in place as they are, without a copy of any operand."""
    found: dict[int, Atoms] = {}
    for x, dims in zip(operands, rule.operands, strict=False):
        split, uniform = x.layout.split, x.uniform
        for d, factors in enumerate(dims):
            if factors and not uniform[d]:
                axes = found.setdefault(factors[0], split[d])
                if axes != split[d]:
                    found[factors[0]] = _common_suffix(axes, split[d])
    orders: Orders = {}
    minor = _minor(rule)
    for f, order in found.items():
        if not order:
            continue
        factor = rule.factors[f]
        if factor.kind == REDUCE:
            order = _suffix_within(order, folds.get(factor.operator, NONE))
        elif factor.kind != PASS or factor.blocked:
            continue
        if order and f not in minor:
            orders[f] = order
    return without_conflicts(rule, operands, orders) if orders else orders


def _minor(rule: FactorRule) -> set[int]:
    """The factors that are, in some dimension, not the major part."""
    found = rule.memo.get("minor")
    if found is None:
        found = rule.memo["minor"] = set()
        for dims in (*rule.operands, *rule.results):
            for factors in dims:
                if len(factors) > 1:
                    found.update(factors[1:])
    return found


def _common_suffix(x: Atoms, y: Atoms) -> Atoms:
    """The longest common end of both."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(x[::-1], y[::-1], strict=False))
    return tuple([a for a, _ in same])[::-1]


def _suffix_within(order: Atoms, allowed: frozenset[str]) -> Atoms:
    return tuple(itertools.takewhile(allowed.__contains__, order[::-1]))[::-1]


def without_conflicts(rule: FactorRule, operands: Sequence[Value], orders: Orders) -> Orders:
    """The orders without axes that some operand has elsewhere (and what is major to those)."""
    out: Orders = {}
    for f, order in orders.items():
        start = 0
        for i, a in enumerate(order):
            for x, dims in zip(operands, rule.operands, strict=False):
                if a in x.layout.stack:
                    start = i + 1
                    continue
                for d, axes in enumerate(x.layout.split):
                    if a in axes and dims[d][:1] != (f,):
                        start = i + 1
        if start < len(order):
            out[f] = order[start:]
    return out


def splits(values: Sequence[Sequence[Sequence[int]]], orders: Orders) -> list[tuple[Atoms, ...]]:
    """For each operand or result, of which the factors of each dimension are given, the axes to
    have in place in each."""
    return [tuple([orders.get(factors[0], ()) if factors else () for factors in dims])
            for dims in values]


def uniform_dims(rule: FactorRule, operands: Sequence[Value], orders: Orders, makes_new: bool
                 ) -> list[tuple[bool, ...]]:
    """For each result: along which dimensions all elements are the same.

    makes_new: whether the op repeats its operand along factors that no operand has.
    """
    count = len(operands)
    if not makes_new and not any([True in x.uniform for x in operands]):
        return [(False,) * len(dims) for dims in rule.results]

    def flat(f: int) -> bool:
        if f in orders or rule.factors[f].kind != PASS:
            return False
        sources = [(t, d) for t, d, _ in rule.carriers(f) if t < count]
        if not sources:
            return makes_new
        return all(operands[t].uniform[d] for t, d in sources)

    return [tuple(bool(factors) and all(map(flat, factors)) for factors in dims)
            for dims in rule.results]


def folds_of(found: Sequence[Folds]) -> Mapping[str, frozenset[str]]:
    """What all results of an equation, several or none, allow."""
    first, *rest = found or [{}]
    return {o: axes.intersection(*(other.get(o, NONE) for other in rest))
            for o, axes in first.items()}
