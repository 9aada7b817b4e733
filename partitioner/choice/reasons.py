"""Reasons: the clause that says why an operand or a result is moved.

An equation *needs* a layout if its factor rule allows no other, and *takes* one if the search
preferred it or the user requested it. comparisons.py finds out which.
"""
from __future__ import annotations

from typing import Any

from ...ir import reasons as say
from ...ir.op import Op
from ...ir.reasons import Clause, Tensor, operand
from ...ir.rules.factor import REDUCE
from ...ir.support.caches import cached
from ...ir.types import ArrayType
from ..factors import Axes, RuleInfo
from .strategies import StrategySpec


def _over(axes: Axes) -> str:
    return f"over {', '.join(axes)}" if axes else "whole"


def _tensor(info: RuleInfo, t: int) -> Tensor:
    if t < info.operands:
        return operand(t)
    return say.result(t - info.operands, info.count - info.operands)


def _carrier(info: RuleInfo, f: int, besides: int) -> tuple[int, Tensor]:
    """Where a factor appears: a dimension of a tensor; preferably not of operand `besides`."""
    places = [(t == besides, t, d) for t, place in enumerate(info.places)
              for g, d, _ in place if g == f]
    _, t, d = min(places)
    return d, _tensor(info, t)


@cached(4096)
def operand_reason(op: Op, info: RuleInfo, i: int, spec: StrategySpec, types: tuple[ArrayType, ...],
                   needed: bool) -> Clause:
    """Why operand i is moved: "`add` takes dimension 0 of operand 1 over X, as operand 0 has".

    needed: whether the equation has no strategy that leaves it in place.
    """
    name = op.name
    finished = types[i].sharding.spec.unreduced - spec.pending
    if finished:
        return (say.NEEDS_SUM if needed else say.TAKES_SUM)(name, ", ".join(sorted(finished)))
    for d, (have, need) in enumerate(zip(types[i].entries, spec.layouts[i], strict=True)):
        if have == need:
            continue
        factors = info.maps[i][d]
        because = _because(info, i, spec, types, needed, factors, have, need)
        return (say.NEEDS if needed else say.TAKES)(name, d, operand(i), _over(need),
                                                    because=because)
    return (say.NEEDS_OTHER if needed else say.TAKES_OTHER)(name, operand(i))


def _because(info: RuleInfo, i: int, spec: StrategySpec, types: tuple[ArrayType, ...], needed: bool,
             factors: Any, have: Axes, need: Axes) -> tuple[Clause, ...]:
    """Why a dimension of operand i, with these factors, is not taken as it is."""
    lost = [a for a in have if a not in need]
    if lost and any(not info.split_ok[f] for f in factors):
        return (say.WORKS_ALONG(),)
    merged = any(len(dim) > 1 and set(dim) & set(factors) for dims in info.maps for dim in dims)
    if merged and lost and needed:
        return (say.CONTIGUOUS(),)
    for a in lost:
        taken = next((f for f, axes in spec.axes_of.items() if a in axes), None)
        if taken is not None and taken not in factors:
            return (say.SPLITS(a, *_carrier(info, taken, i)),)
    for t, other in enumerate(types):
        if t == i:
            continue
        for e, group in enumerate(info.maps[t]):
            if set(group) & set(factors) and other.entries[e] != have:
                return (say.HAS(_tensor(info, t), e, _over(other.entries[e])),)
    return ()


@cached(4096)
def result_reason(op: Op, info: RuleInfo, spec: StrategySpec, k: int, aval: ArrayType, asked: bool
                  ) -> Clause:
    """Why a result is moved after it was computed. asked: whether the user wrote its sharding."""
    name = op.name
    summed = spec.pending - aval.sharding.spec.unreduced
    if summed:
        factors = [f for f, axes in sorted(spec.axes_of.items())
                   if set(axes) & summed and info.factors[f].kind == REDUCE]
        along = [say.OVER(d, operand(i), ", ".join(sorted(summed))) for f in factors
                 for i in range(info.operands) for g, d, _ in info.places[i] if g == f]
        return say.LEAVES(name, because=tuple(along[:1]))
    have = spec.layouts[info.operands + k]
    for d, (a, b) in enumerate(zip(have, aval.entries, strict=True)):
        if a != b:
            gives = say.GIVES_ASKED if asked else say.GIVES
            return gives(name, d, _over(a), say.RESULT, _over(b))
    return say.PENDING(name)
