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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.rules.factor import HALO, INDEXED, ORDERED, PASS, REDUCE, Factor
from ..ir.rules.rule import FactorRule
from ..ir.support.caches import cached
from ..ir.types import Entries, Shape

Axes = tuple[str, ...]
AxisSize = Callable[[str], int]
_NONE: frozenset[int] = frozenset()


class RuleInfo:
    """What propagation and choice ask of a rule again and again; one per rule (`rule_info`).

    places: for each tensor (operands, then results) its factors as (factor, dim, is_minor).
    kind: "structural" where every factor passes through and is in all tensors that have a rank,
      "broadcast" where factors pass through and some are new in the result, else "other".
    flows: per factor, whether sharding may flow along it at all. is_product: whether operands are
      multiplied and summed (a dot product, a convolution).
    positions: per factor, where sharding flows along it, as (tensor, dim, is_minor). flowing,
      passing: the factors along which it flows, and those of them that pass through, as do rows
      that each device writes if it owns them. simple: whether no dimension has several factors;
      plain: per tensor the factor of each dimension (-1 for none), or None where a dimension has
      several. carried: per tensor its factors.
    """

    __slots__ = ("carried", "count", "factors", "flowing", "flows", "has_halos", "has_other_kinds",
                 "is_product", "kind", "maps", "operands", "passing", "places", "plain", "rule",
                 "simple", "split_ok", "positions")

    def __init__(self, rule: FactorRule) -> None:
        self.rule = rule
        self.factors: tuple[Factor, ...] = rule.factors
        self.maps = rule.operands + rule.results
        # Rules that differ only in sizes share the rest of these facts.
        sizes = tuple([f.size if f.size < 2 else 2 for f in rule.factors])
        pattern = rule.pattern
        known = pattern.memo if pattern is not None else {}
        if sizes not in known:
            known[sizes] = _Structure(self.maps, len(rule.operands), rule.factors, sizes,
                                      pattern is not None and pattern.plain)
        like = known[sizes]
        self.operands = like.operands
        self.carried, self.count, self.flowing = like.carried, like.count, like.flowing
        self.flows, self.has_halos = like.flows, like.has_halos
        self.has_other_kinds, self.is_product = like.has_other_kinds, like.is_product
        self.kind, self.passing, self.places = like.kind, like.passing, like.places
        self.plain, self.simple = like.plain, like.simple
        self.split_ok, self.positions = like.split_ok, like.positions

    def carries(self, factor: int, tensor: int) -> bool:
        """Does sharding flow along this factor of this tensor? (It does not in an operand read at
        indices.)
        """
        return any(t == tensor for t, _, _ in self.positions[factor])


Place = tuple[tuple[int, int, bool], ...]


@cached(4096)
def _tensor(dims: tuple[tuple[int, ...], ...]
            ) -> tuple[Place, frozenset[int], tuple[int, ...] | None, frozenset[int]]:
    """(`places`, `carried`, `plain` of RuleInfo, and the factors in several dimensions) for a
    tensor with these factors. No axis can split all dimensions of such a diagonal.
    """
    plain = None
    if any([split[1:] for split in dims]):
        place = tuple([(f, d, not split[p + 1:]) for d, split in enumerate(dims)
                       for p, f in enumerate(split)])
    else:
        place = tuple([(split[0], d, True) for d, split in enumerate(dims) if split])
        plain = tuple([split[0] if split else -1 for split in dims])
    numbers = [f for f, _, _ in place]
    carried = frozenset(numbers)
    if len(numbers) == len(carried):
        return place, carried, plain, _NONE
    return place, carried, plain, frozenset([f for f in carried if numbers.count(f) > 1])


class _Structure:
    """What rules that differ only in sizes have in common; fields as in RuleInfo.

    sizes: of each factor, 0, 1, or 2 for anything larger. plain: whether all factors are known to
    pass through and none is blocked.
    """

    __slots__ = ("carried", "count", "flowing", "flows", "has_halos", "has_other_kinds",
                 "is_product", "kind", "operands", "passing", "places", "plain", "simple",
                 "split_ok", "positions")

    def __init__(self, maps: tuple, operands: int, factors: tuple[Factor, ...],
                 sizes: tuple[int, ...], plain: bool) -> None:
        count = len(factors)
        self.count, self.operands = len(maps), operands
        parts: Any = zip(*map(_tensor, maps), strict=True) if maps else ((), (), (), ())
        self.places, self.carried, self.plain, doubles = parts
        self.simple = None not in self.plain
        twice = _NONE.union(*doubles)
        # no sharding flows from an operand read at indices to the results
        hidden = () if plain else {f for f, factor in enumerate(factors)
                                   if factor.kind == INDEXED and factor.operator != "own"}
        positions: list[tuple[tuple[int, int, bool], ...]] = [()] * count
        for t, place in enumerate(self.places):
            for f, d, minor in place:
                if t < operands or f not in hidden:
                    positions[f] += ((t, d, minor),)
        self.positions = tuple(positions)
        self.has_halos = self.has_other_kinds = self.is_product = False
        if plain and not twice:
            self.flows = self.split_ok = (True,) * count
            self.flowing = self.passing = tuple(range(count))
        else:
            self._with_kinds(operands, factors, sizes, twice)
        self.kind = self._kind(maps, operands, factors)

    def _with_kinds(self, operands: int, factors: tuple[Factor, ...], sizes: tuple[int, ...],
                    twice: frozenset[int]) -> None:
        """Set what follows from the kinds of factors: which pass axes on in propagation (`flows`),
        and along which an equation may be split at all (`split_ok`).
        """
        kinds = [factor.kind for factor in factors]
        self.has_halos = HALO in kinds or any([factor.reach > 0 for factor in factors])
        self.has_other_kinds = any([kind != PASS for kind in kinds])
        # along an ordered factor only if its axes can move to another dimension for the op
        stuck = ORDERED in kinds and not any([
            kind == PASS and size > 1 for kind, size in zip(kinds, sizes, strict=True)])
        self.flows = tuple([
            not factor.blocked and f not in twice and not (stuck and factor.kind == ORDERED)
            for f, factor in enumerate(factors)])
        self.flowing = tuple([f for f, flows in enumerate(self.flows) if flows])
        self.passing = tuple([f for f in self.flowing if kinds[f] == PASS or (
            kinds[f] == INDEXED and factors[f].operator == "own")])
        ends: frozenset[int] = _NONE
        if self.has_halos and operands:
            ends = self.carried[0] & _NONE.union(*self.carried[operands:])
        self.split_ok = tuple([
            factor.splittable and f not in twice and (factor.kind != HALO or f in ends)
            for f, factor in enumerate(factors)])
        for f, factor in enumerate(factors):
            if factor.kind == REDUCE and factor.operator == "sum" and INDEXED not in kinds:
                if len({t for t, _, _ in self.positions[f] if t < operands}) > 1:
                    self.is_product = True

    def _kind(self, maps: tuple, operands: int, factors: tuple[Factor, ...]) -> str:
        """"structural", "broadcast" or "other", whatever dimensions of size 1 there are."""
        real = frozenset([f for f, factor in enumerate(factors) if factor.size != 1])
        carried = [c & real for c in self.carried]
        if self.has_other_kinds and any([factors[f].kind != PASS for f in real]):
            return "other"
        for c, dims in zip(carried, maps, strict=True):
            if dims and c != real:
                break
        else:
            return "structural"
        if operands != 1:
            return "other"
        return "broadcast" if carried[0] < _NONE.union(*carried[1:]) else "other"


def rule_info(rule: FactorRule) -> RuleInfo:
    info = rule.info
    if info is None:
        info = rule.info = RuleInfo(rule)
    return info


def project(dims: tuple, factors: tuple[Factor, ...], entries: Entries, size: AxisSize
            ) -> tuple[dict[int, Axes], Axes, frozenset[int]]:
    """(axes of each factor, overflow axes, factors that overflow leaves closed) of one tensor."""
    found: dict[int, Axes] = {}
    overflow: Axes = ()
    closed: frozenset[int] = _NONE
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
    """The axes of a dimension, from those of its factors; None if the block would be strided."""
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


def major_factor(split: Sequence[int], rule: FactorRule) -> int:
    """The first factor of a dimension that is larger than 1; -1 if there is none."""
    return next((f for f in split if rule.factors[f].size != 1), split[0] if split else -1)


def tensor_entries(dims: tuple, shape: Shape, factors: tuple[Factor, ...],
                   axes_of: Mapping[int, Axes], size: AxisSize) -> Entries | None:
    """The layout of a tensor whose factors have these axes; None if a block would be strided or a
    dimension is not divisible.
    """
    out = []
    for split, n in zip(dims, shape, strict=True):
        axes = (axes_of.get(split[0], ()) if len(split) == 1
                else dim_axes(split, factors, axes_of, size))
        if axes is None or (axes and n % math.prod(map(size, axes))):
            return None
        out.append(axes)
    return tuple(out)
