"""Projection: from axes on dimensions to axes on factors, and back.

A factor rule splits each dimension into factors, major to minor. Projecting a layout gives the
axes of the dimension to its factors in that order, an axis to a factor while it divides what is
left of it; an axis that fits no factor as a whole is *overflow*: legal for the value, but of no
meaning to the equation. Back-projection concatenates the factors' axes; a minor factor may carry
axes only if every factor major to it is full, otherwise a block would not be contiguous.
After Shardy's sharding projection, over whole mesh axes.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ..ir.rule import HALO, INDEXED, ORDERED, PASS, REDUCE, Factor, FactorRule
from ..ir.types import Entries, Shape

Axes = tuple[str, ...]
AxisSize = Callable[[str], int]


class RuleInfo:
    """What propagation and choice ask of a rule again and again; one per rule (`rule_info`).

    places: for each tensor (operands, then results) its factors as (factor, dim, is_minor).
    kind: "structural" where every factor passes through and is in all tensors that have a rank,
      "broadcast" where factors pass through and some are new in the result, else "other".
    flows: per factor, whether sharding may flow along it at all. is_product: whether operands are
      multiplied and summed (a dot product, a convolution).
    """

    __slots__ = ("count", "factors", "flows", "has_halos", "has_other_kinds", "is_product", "kind",
                 "maps", "operands", "places", "rule", "split_ok")

    def __init__(self, rule: FactorRule) -> None:
        self.rule = rule
        self.factors: tuple[Factor, ...] = rule.factors
        self.maps = rule.operands + rule.results
        self.operands = len(rule.operands)
        self.count = len(self.maps)
        places = []
        twice: set[int] = set()
        for dims in self.maps:
            found: list[tuple[int, int, bool]] = []
            for d, factors in enumerate(dims):
                for p, f in enumerate(factors):
                    if any(f == g for g, _, _ in found):
                        twice.add(f)          # a diagonal: one axis cannot split both dimensions
                    found.append((f, d, p == len(factors) - 1))
            places.append(tuple(found))
        self.places: tuple[tuple[tuple[int, int, bool], ...], ...] = tuple(places)
        passing = any(f.kind == PASS and f.size > 1 for f in self.factors)
        # along an ordered factor only where its axes can move to another dimension meanwhile
        self.flows = tuple(not f.blocked and i not in twice and (f.kind != ORDERED or passing)
                           for i, f in enumerate(self.factors))
        results = {f for place in self.places[self.operands:] for f, _, _ in place}
        first = {f for f, _, _ in self.places[0]} if self.operands else set()
        self.split_ok = tuple(
            f.splittable and i not in twice and (f.kind != HALO or i in results & first)
            for i, f in enumerate(self.factors))
        self.has_halos = any(f.kind == HALO for f in self.factors)
        self.has_other_kinds = any(f.kind != PASS for f in self.factors)
        self.is_product = any(
            factor.kind == REDUCE and factor.operator == "sum"
            and sum(any(f == g for g, _, _ in place) for place in self.places[:self.operands]) > 1
            for f, factor in enumerate(self.factors))
        self.kind = self._kind()

    def _kind(self) -> str:
        real = {i for i, f in enumerate(self.factors) if f.size != 1}
        if any(self.factors[i].kind != PASS for i in real):
            return "other"
        carried = [{f for f, _, _ in place} & real for place in self.places]
        ranked = [c for c, dims in zip(carried, self.maps, strict=True) if dims]
        if all(c == real for c in ranked):
            return "structural"
        ins = set().union(*carried[:self.operands]) if self.operands else set()
        outs = set().union(*carried[self.operands:])
        return "broadcast" if self.operands == 1 and ins < outs else "other"

    def carries(self, factor: int, tensor: int) -> bool:
        """Does sharding flow along this factor in this tensor? (Not in what is read at indices.)"""
        if tensor >= self.operands and self.factors[factor].kind == INDEXED \
                and self.factors[factor].operator != "own":
            return False
        return any(f == factor for f, _, _ in self.places[tensor])


def rule_info(rule: FactorRule) -> RuleInfo:
    info = rule.memo.get("info")
    if info is None:
        info = rule.memo["info"] = RuleInfo(rule)
    return info


def project(dims: tuple, factors: tuple[Factor, ...], entries: Entries, size: AxisSize
            ) -> tuple[dict[int, Axes], Axes, frozenset[int]]:
    """(axes of each factor, overflow axes, factors that overflow leaves closed) of one tensor."""
    found: dict[int, Axes] = {}
    overflow: Axes = ()
    closed: frozenset[int] = frozenset()
    for split, axes in zip(dims, entries, strict=True):
        if len(split) == 1:
            found[split[0]] = axes
            continue
        if not split:
            overflow += axes
            continue
        for f in split:
            found[f] = ()
        if not axes:
            continue
        i, rest = 0, factors[split[0]].size
        for k, axis in enumerate(axes):
            n = size(axis)
            while rest == 1 and i < len(split) - 1:
                i += 1
                rest = factors[split[i]].size
            if rest % n:
                overflow += axes[k:]
                closed |= frozenset(split[i:])
                break
            found[split[i]] += (axis,)
            rest //= n
    return found, overflow, closed


def dim_axes(split: tuple[int, ...], factors: tuple[Factor, ...], axes_of: Mapping[int, Axes],
             size: AxisSize) -> Axes | None:
    """The axes of a dimension from those of its factors; None where the block would be strided."""
    if len(split) == 1:
        return axes_of.get(split[0], ())
    out: Axes = ()
    full = True
    for f in split:
        axes = axes_of.get(f, ())
        if axes:
            if not full:
                return None
            out += axes
        full = full and math.prod(map(size, axes)) == factors[f].size
    return out


def tensor_entries(dims: tuple, shape: Shape, factors: tuple[Factor, ...],
                   axes_of: Mapping[int, Axes], size: AxisSize) -> Entries | None:
    """The layout of a tensor in which each factor has these axes; None if it has none.

    It has none where a block would be strided or a dimension is not divisible.
    """
    out = []
    for split, n in zip(dims, shape, strict=True):
        axes = dim_axes(split, factors, axes_of, size)
        if axes is None or (axes and n % math.prod(map(size, axes))):
            return None
        out.append(axes)
    return tuple(out)
