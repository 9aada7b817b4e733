"""How XLA splits a product: which axes each factor of it gets.

XLA takes groups of devices off, one kind of factors after the other, and looks at the product that
is left for the devices of one group. A group is taken off where operands and result, or both
operands, have as many tiles: along batch factors, then along those that the larger operand and the
result have, then along those that are summed. First only where the same devices hold the same
tiles; then the others are numbered as those are that move least. What is left over is computed in
the layout of the result.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...ir.meshes.mesh import AbstractMesh
from ..factors import Axes, RuleInfo
from ..redistribution.prime_axes import PrimeAxes

COPIES = -1
Tensor = dict[int, Axes]        # by factor, in the order of dimensions; last the axes of copies
Sizes = Mapping[int, float]     # of factors, as a group of devices has them


def product_axes(info: RuleInfo, parts: Sequence[Mapping[int, Axes]], mesh: AbstractMesh
                 ) -> tuple[Tensor, list[list[Tensor]]]:
    """(The axes of each factor, and for each operand those that its factors have on the way).
    parts: those that operands and result have.
    """
    own = _Product(info, mesh)
    tensors = [own.tensor(t, part) for t, part in enumerate(parts)]
    sizes = {f: float(factor.size) for f, factor in enumerate(info.factors)}
    found = own.merged(own.split(tensors, sizes))
    return found, [[*map(own.merged, way)] for way in own.ways]


class _Product:
    """The factors of a product: batch, of the left operand and the result, of the right operand and
    the result, summed.

    groups: the axes of those that groups have been taken off along, so far; ways: what each operand
    was in whenever one was.
    """

    def __init__(self, info: RuleInfo, mesh: AbstractMesh) -> None:
        self.info, self.axes = info, PrimeAxes(mesh)
        left, right, out = info.carried
        self.batch = sorted(left & right & out)
        self.free = (sorted((left - right) & out), sorted((right - left) & out))
        self.summed = sorted((left & right) - out)
        self.groups: Tensor = {}
        self.ways: list[list[Tensor]] = [[], []]

    def merged(self, tensor: Tensor) -> Tensor:
        """By the largest axes that those of a factor make, without copies."""
        return {f: self.axes.merged(axes) for f, axes in tensor.items() if axes and f >= 0}

    def tensor(self, t: int, part: Mapping[int, Axes]) -> Tensor:
        found = {f: self.axes.primes(part.get(f, ())) for f, _, _ in self.info.places[t]}
        return {**found, COPIES: self.axes.others(found.values())}

    def count(self, tensor: Tensor, factors: Sequence[int]) -> int:
        return math.prod([self.axes.count(tensor[f]) for f in factors])

    def elements(self, tensor: Tensor, sizes: Sizes, split: bool = True) -> float:
        """Elements of a block, or of the whole that a group has."""
        return math.prod([sizes[f] / (self.axes.count(axes) if split else 1)
                          for f, axes in tensor.items() if f >= 0])

    def split(self, tensors: Sequence[Tensor], sizes: Sizes) -> Tensor:
        """The axes of each factor for the devices of a group."""
        for strict in (True, False):
            for case in (self.at_once, self.by_batch, self.by_free, self.by_summed,
                         self.without_copies, self.as_result):
                found = case(tensors, sizes, strict)
                if found is not None:
                    return found
        return {f: tensors[2][f] for f in (*self.batch, *self.free[0], *self.free[1])}

    def rest(self, tensors: Sequence[Tensor], sizes: Sizes, group: Tensor) -> Tensor:
        """The axes of each factor where devices share tiles along those of a group."""
        for way, tensor in zip(self.ways, tensors, strict=False):
            way.append({f: self.groups.get(f, axes) for f, axes in tensor.items()})
        self.groups = {**self.groups, **group}
        taken = frozenset().union(*group.values())
        inner = [{f: () if f in group else axes for f, axes in t.items()} for t in tensors]
        for tensor in inner:
            tensor[COPIES] = tuple([a for a in tensor[COPIES] if a not in taken])
        found = self.split(inner, {f: n / self.axes.count(group.get(f, ()))
                                   for f, n in sizes.items()})
        return {**found, **group}

    # -- the cases -------------------------------------------------------------------------------

    def at_once(self, tensors: Sequence[Tensor], sizes: Sizes, strict: bool) -> Tensor | None:
        """All devices along factors of one kind."""
        left, right, out = tensors
        n = math.prod(map(self.axes.count, left.values()))
        if n > 1 and out[COPIES] and _is_split(out):
            return None

        def full(tensor: Tensor, factors: Sequence[int]) -> bool:
            return self.count(tensor, factors) == n

        def those(tensor: Tensor, factors: Sequence[int]) -> Tensor:
            return {f: tensor[f] for f in factors}

        for one, other in ((left, right), (left, out), (right, out)):
            if full(one, self.batch) and those(one, self.batch) == those(other, self.batch):
                return those(one, self.batch)
        if full(left, self.summed) and full(right, self.summed):
            fewer = self.elements(left, sizes, False) < self.elements(right, sizes, False)
            return those(right if fewer else left, self.summed)
        for one, factors in zip((left, right), self.free, strict=True):
            if full(one, factors) and those(one, factors) == those(out, factors):
                return those(one, factors)
        return None

    def as_result(self, tensors: Sequence[Tensor], sizes: Sizes, strict: bool) -> Tensor | None:
        """All devices along factors of the result, or along summed ones if it is whole."""
        left, right, out = tensors
        n = math.prod(map(self.axes.count, left.values()))
        if out[COPIES] and _is_split(out):
            return None
        for factors in (self.batch, *self.free):
            if self.count(out, factors) == n:
                return {f: out[f] for f in factors}
        for one, other in ((right, left), (left, right)):
            if (not _is_split(out) and self.count(one, self.summed) == n and not _is_split(other)
                    and self.elements(one, sizes, False) > self.elements(out, sizes, False)):
                return {f: one[f] for f in self.summed}
        return None

    def by_batch(self, tensors: Sequence[Tensor], sizes: Sizes, strict: bool) -> Tensor | None:
        left, right, out = tensors
        factors, wanted = self.batch, self.count(out, self.batch)
        if wanted < 2 or wanted not in (self.count(left, factors), self.count(right, factors)):
            return None
        counts = [[self.axes.count(t[f]) for f in factors] for t in tensors]
        if counts[0] == counts[1] and not (strict and self.aligned(right, left, factors) != right):
            if self.elements(left, sizes) > self.elements(right, sizes):
                right = self.aligned(right, left, factors)
            else:
                left = self.aligned(left, right, factors)
            moved = self.aligned(out, left, factors, counts[0])
            group = {f: left[f] for f in factors}
            return None if moved is None or left is None or right is None else self.rest(
                (left, right, moved), sizes, group)
        found = [self.as_batch(tensors[t], tensors[1 - t], out, t) for t in (0, 1)]
        if found[0] is None or found[1] is None or strict and found != [left, right]:
            return None
        return self.rest((*found, out), sizes, {f: out[f] for f in factors})

    def as_batch(self, tensor: Tensor, other: Tensor, out: Tensor, t: int) -> Tensor | None:
        """An operand with batch factors as the result has them, and less of others if it must."""
        if not _is_split(tensor):
            return self.replicated(tensor, out, self.batch)
        n = math.prod(map(self.axes.count, tensor.values()))
        counts = {f: self.axes.count((out if f in self.batch else tensor)[f]) for f in tensor}
        ratio, rest = divmod(math.prod(counts.values()), n)
        summed, free = (self.count(tensor, factors) for factors in (self.summed, self.free[t]))
        if rest:
            return None
        if ratio > 1 and counts[COPIES] % ratio == 0:
            counts[COPIES] //= ratio
        elif ratio == free > 1 and (ratio != summed or summed == self.count(other, self.summed)):
            counts.update(dict.fromkeys(self.free[t], 1))
        elif ratio == summed > 1:
            counts.update(dict.fromkeys(self.summed, 1))
        elif ratio != 1:
            return None
        return self.aligned(tensor, out, self.batch, [*counts.values()])

    def by_free(self, tensors: Sequence[Tensor], sizes: Sizes, strict: bool) -> Tensor | None:
        """Factors that the result and one operand have; the other operand is gathered along them.
        """
        out, counts = tensors[2], [self.count(tensors[t], self.free[t]) for t in (0, 1)]
        wanted = [self.count(out, self.free[t]) for t in (0, 1)]
        alike = [counts[t] == wanted[t] > 1 for t in (0, 1)]
        t, factors = 0, []
        if any(alike):
            moved = [counts[t] * self.elements(tensors[1 - t], sizes) for t in (0, 1)]
            t = 0 if alike[0] and (not alike[1] or moved[0] < moved[1]) else 1
            factors = self.free[t]
        elif any([counts[t] > 1 < wanted[t] for t in (0, 1)]):
            t = 0 if counts[0] > 1 < wanted[0] else 1
            factors = [f for f in self.free[t] if len(tensors[t][f]) and self.axes.count(
                tensors[t][f]) == self.axes.count(out[f])]
        if not factors:
            return None
        own = self.aligned(tensors[t], out, factors)
        if own is None or strict and own != tensors[t]:
            return None
        group = {f: out[f] for f in factors}
        other = self.without(tensors[1 - t], tensors[t], out, group, sizes, 1 - t)
        return self.rest((own, other, out) if t == 0 else (other, own, out), sizes, group)

    def without(self, other: Tensor, own: Tensor, out: Tensor, group: Tensor, sizes: Sizes, t: int
                ) -> Tensor:
        """The other operand, gathered along the axes of a group."""
        found = self.gathered(other, own, out, group, sizes, t)
        if found is None and _is_split(other):
            wanted = dict.fromkeys(other, ())
            used: set[str] = set()
            for f in sorted(other, key=self.summed.__contains__):       # the result comes first
                axes = (own if f in self.summed else out)[f] if f >= 0 else ()
                if used.isdisjoint(axes):
                    wanted[f] = axes
                    used.update(axes)
            wanted[COPIES] = tuple([a for a in self.axes.all if a not in used and any(
                [a in axes for axes in other.values()])])
            if _is_split(wanted):
                found = self.gathered(wanted, own, out, group, sizes, t)
        return self.replicated(other, out, [*group]) if found is None else found

    def gathered(self, other: Tensor, own: Tensor, out: Tensor, group: Tensor, sizes: Sizes, t: int
                 ) -> Tensor | None:
        taken = {a for axes in group.values() for a in axes}
        n, counts = self.count(group, [*group]), {f: self.axes.count(a) for f, a in other.items()}
        if not _is_split(other):
            return None
        if other[COPIES] and counts[COPIES] % n == 0:
            for f in reversed(other):
                if counts[f] % n == 0 and taken.issubset(other[f]):
                    swapped = {**other, f: other[COPIES], COPIES: other[f]}
                    return {**swapped, COPIES: tuple(
                        [a for a in other[f] if a not in taken])}
            parts = self.axes.parted(other[COPIES], n, counts[COPIES] // n)
            return None if parts is None else self.renumbered(
                {**other, COPIES: parts[1]}, out, [*group])
        inside = [f for f, axes in other.items() if axes and taken.issuperset(axes)]
        if self.count(other, inside) == n or n == math.prod(counts.values()):
            return {f: tuple([a for a in axes if a not in taken]) for f, axes in other.items()}
        summed, free = self.count(other, self.summed), self.count(other, self.free[t])
        by_free = n == free and self.count(own, self.summed) == summed
        if (summed == n and free == self.count(out, self.free[t])
                and (not by_free or self.elements(other, sizes) <= self.elements(out, sizes))):
            dropped = self.summed
        elif by_free:
            dropped = self.free[t]
        else:
            return None
        return self.renumbered({f: () if f in dropped else axes for f, axes in other.items()}, out,
                               [*group])

    def by_summed(self, tensors: Sequence[Tensor], sizes: Sizes, strict: bool) -> Tensor | None:
        left, right, out = tensors
        counts = [self.count(t, self.summed) for t in (left, right)]
        factors = self.summed
        if counts[0] != counts[1]:
            factors = [f for f in factors if left[f] and self.axes.count(left[f])
                       == self.axes.count(right[f])]
        if min(counts) < 2 or not factors:
            return None
        if self.elements(left, sizes) > self.elements(right, sizes):
            moved = right = self.aligned(right, left, factors,
                                         [self.axes.count(left[f]) for f in factors])
        else:
            moved = left = self.aligned(left, right, factors,
                                        [self.axes.count(right[f]) for f in factors])
        if moved is None or strict and moved not in tensors:
            return None
        group = {f: left[f] for f in factors}
        return self.rest((left, right, self.sum_of(left, right, out, group)), sizes, group)

    def sum_of(self, left: Tensor, right: Tensor, out: Tensor, group: Tensor) -> Tensor:
        """The result that devices of a group compute their part of, for a sum over its axes."""
        taken, n = {a for axes in group.values() for a in axes}, self.count(group, [*group])
        copies = self.axes.count(out[COPIES])
        if _is_split(out) and (not out[COPIES] or copies % n):
            alone = [t for t in (left, right) if any(
                [axes for f, axes in t.items() if f >= 0 and f not in group])]
            if len(alone) == 1:
                kept = {f: alone[0].get(f, ()) for f in out if f >= 0}
                if all([out[f][:len(axes)] == axes for f, axes in kept.items()]):
                    out = {**kept, COPIES: self.axes.others(kept.values())}
                    copies = self.axes.count(out[COPIES])
        if not _is_split(out):
            return self.replicated(out, left, [*group])
        if out[COPIES] and copies % n == 0:
            parts = self.axes.parted(out[COPIES], n, copies // n)
            if parts is not None:
                inner = {**out, COPIES: parts[1]}
                return inner if taken == {*parts[0]} else self.renumbered(inner, left, [*group]
                                                                          ) or inner
        inside = [f for f, axes in out.items() if axes and taken.issuperset(axes)]
        if self.count(out, inside) == n or n == math.prod(map(self.axes.count, out.values())):
            return {f: tuple([a for a in axes if a not in taken]) for f, axes in out.items()}
        for factors in (*self.free, self.batch):
            if self.count(out, factors) == n:
                inner = {f: () if f in factors else axes for f, axes in out.items()}
                return self.renumbered(inner, left, [*group]) or self.replicated(
                    out, left, [*group])
        return self.replicated(out, left, [*group])

    def without_copies(self, tensors: Sequence[Tensor], sizes: Sizes, strict: bool
                       ) -> Tensor | None:
        left, right, out = tensors
        if _is_split(left) or _is_split(right) or not out[COPIES] or not _is_split(out):
            return None
        inner = {**out, COPIES: ()}
        return self.split([self.replicated(left, inner, ()), self.replicated(right, inner, ()),
                           inner], sizes)

    # -- devices ---------------------------------------------------------------------------------

    def replicated(self, tensor: Tensor, like: Tensor, group: Sequence[int]) -> Tensor:
        """A whole tensor on the devices of the groups that these factors of another make."""
        axes = tuple([a for f, axes in like.items() if f not in group for a in axes])
        return {**dict.fromkeys(tensor, ()), COPIES: axes}

    def renumbered(self, tensor: Tensor, like: Tensor, group: Sequence[int]) -> Tensor | None:
        """A tensor on the devices of the groups that these factors of another make, counted in the
        other's order.
        """
        found = self.axes.parted(sum([like[f] for f in like if f not in group], ()),
                                 *map(self.axes.count, tensor.values()))
        return None if found is None else dict(zip(tensor, found, strict=True))

    def aligned(self, tensor: Tensor, like: Tensor, factors: Sequence[int],
                counts: Sequence[int] = ()) -> Tensor | None:
        """A tensor whose tiles along these factors are on the devices of another's. counts: of its
        tiles along them, or along all.
        """
        own = {f: self.axes.count(axes) for f, axes in tensor.items()}
        own.update(zip(own if len(counts) == len(own) else factors, counts, strict=False))
        shaped = self.axes.parted(sum(tensor.values(), ()), *own.values())
        if shaped is None:
            return None
        tensor = dict(zip(tensor, shaped, strict=True))
        if all([tensor[f] == like[f] for f in factors]):
            return tensor
        inner = self.renumbered({f: () if f in factors else axes for f, axes in tensor.items()},
                                like, factors)
        return None if inner is None else {**inner, **{f: like[f] for f in factors}}


def _is_split(tensor: Tensor) -> bool:
    return any([axes for f, axes in tensor.items() if f >= 0])
