"""Reasons: the sentence that says why an operand or a result is moved.

An equation *needs* a layout if its factor rule allows no other, and *takes* one if the search
preferred it or the user requested it. comparisons.py finds out which.
"""
from __future__ import annotations

from ...ir.op import Op
from ...ir.rules.factor import REDUCE
from ...ir.support.caches import cached
from ...ir.types import ArrayType
from ..factors import Axes, RuleInfo
from .strategies import StrategySpec


def _over(axes: Axes) -> str:
    return f"over {', '.join(axes)}" if axes else "whole"


def _tensor(info: RuleInfo, t: int) -> str:
    if t < info.operands:
        return f"operand {t}"
    return "its result" if info.count == info.operands + 1 else f"its result {t - info.operands}"


def _carrier(info: RuleInfo, f: int, besides: int) -> str:
    """Where a factor appears: "dimension 0 of operand 0"; preferably not in operand `besides`."""
    places = [(t == besides, t, d) for t, place in enumerate(info.places)
              for g, d, _ in place if g == f]
    _, t, d = min(places)
    return f"dimension {d} of {_tensor(info, t)}"


@cached(4096)
def operand_reason(op: Op, info: RuleInfo, i: int, spec: StrategySpec, types: tuple[ArrayType, ...],
                   needed: bool) -> str:
    """Why operand i is moved: "`add` takes dimension 0 of operand 1 over X, as operand 0 has".

    needed: whether the equation has no strategy that leaves it in place.
    """
    name, verb = op.name, "needs" if needed else "takes"
    finished = types[i].sharding.spec.unreduced - spec.pending
    if finished:
        return f"`{name}` {verb} the finished sum over {', '.join(sorted(finished))}"
    for d, (have, need) in enumerate(zip(types[i].entries, spec.layouts[i], strict=True)):
        if have == need:
            continue
        what = f"`{name}` {verb} dimension {d} of operand {i} {_over(need)}"
        factors = info.maps[i][d]
        lost = [a for a in have if a not in need]
        if lost and any(not info.split_ok[f] for f in factors):
            return f"{what}: it works along that dimension"
        merged = any(len(dim) > 1 and set(dim) & set(factors) for dims in info.maps for dim in dims)
        if merged and lost and verb == "needs":
            return f"{what}: a block of a merged or split dimension must be contiguous"
        for a in lost:
            taken = next((f for f, axes in spec.axes_of.items() if a in axes), None)
            if taken is not None and taken not in factors:
                return f"{what}: {a} splits {_carrier(info, taken, i)}"
        for t, other in enumerate(types):
            if t == i:
                continue
            for e, group in enumerate(info.maps[t]):
                if set(group) & set(factors) and other.entries[e] != have:
                    return f"{what}: {_tensor(info, t)} has dimension {e} {_over(other.entries[e])}"
        return what
    return f"`{name}` {verb} operand {i} in another layout"


@cached(4096)
def result_reason(op: Op, info: RuleInfo, spec: StrategySpec, k: int, aval: ArrayType, asked: bool
                  ) -> str:
    """Why a result is moved after it was computed. asked: whether the user wrote its sharding."""
    name = op.name
    summed = spec.pending - aval.sharding.spec.unreduced
    if summed:
        factors = [f for f, axes in sorted(spec.axes_of.items())
                   if set(axes) & summed and info.factors[f].kind == REDUCE]
        along = ""
        for f in factors:
            for i in range(info.operands):
                for g, d, _ in info.places[i]:
                    if g == f and not along:
                        over = ", ".join(sorted(summed))
                        along = f": dimension {d} of operand {i} is over {over}"
        return f"`{name}` leaves partial sums{along}"
    have = spec.layouts[info.operands + k]
    for d, (a, b) in enumerate(zip(have, aval.entries, strict=True)):
        if a != b:
            so = "is asked for" if asked else "is laid out"
            return f"`{name}` gives dimension {d} {_over(a)}, its result {so} {_over(b)}"
    return f"the result of `{name}` is a pending sum by its type"
