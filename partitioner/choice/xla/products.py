"""How XLA splits a product: which axes each factor gets.

XLA separates groups of devices, by one kind of factors after the other, and goes on with the
product that is left for the devices of one group. It separates a group where operands and result,
or both operands, have equally many tiles: along batch factors first, then along the factors that
the larger operand shares with the result, then along those that are summed. A first round requires
that the same devices hold the same tiles; a second one renumbers the devices so that least is
moved. What remains is computed in the layout of the result.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from ....ir.meshes.mesh import AbstractMesh
from ...factors import RuleInfo
from .groups import COPIES, DeviceGroups, Sizes, Tensor, is_split


class ProductGroups(DeviceGroups):
    """The groups of a product. summed: the factors that both operands have and the result lacks."""

    def __init__(self, info: RuleInfo, mesh: AbstractMesh) -> None:
        super().__init__(info, mesh)
        left, right, out = info.carried
        self.summed = sorted((left & right) - out)

    def split(self, tensors: Sequence[Tensor], sizes: Sizes) -> Tensor:
        """The axes of each factor for the devices of a group."""
        for strict in (True, False):
            for case in (self.in_one_step, self.as_result, self.by_batch, self.by_free,
                         self.by_summed, self.without_copies):
                found = case(tensors, sizes, strict)
                if found is not None:
                    return found
        return {f: tensors[2][f] for f in (*self.batch, *self.free[0], *self.free[1])}

    # -- the cases -------------------------------------------------------------------------------

    def in_one_step(self, tensors: Sequence[Tensor], sizes: Sizes, strict: bool) -> Tensor | None:
        """All devices split factors of one kind."""
        left, right, out = tensors
        n = math.prod(map(self.axes.count, left.values()))
        if n > 1 and out[COPIES] and is_split(out):
            return None

        def takes_all(tensor: Tensor, factors: Sequence[int]) -> bool:
            return self.count(tensor, factors) == n

        def axes_of(tensor: Tensor, factors: Sequence[int]) -> Tensor:
            return {f: tensor[f] for f in factors}

        for one, other in ((left, right), (left, out), (right, out)):
            if (takes_all(one, self.batch)
                    and axes_of(one, self.batch) == axes_of(other, self.batch)):
                return axes_of(one, self.batch)
        if takes_all(left, self.summed) and takes_all(right, self.summed) and (
                not is_split(out) or axes_of(left, self.summed) == axes_of(right, self.summed)):
            fewer = self.elements(left, sizes, False) < self.elements(right, sizes, False)
            return axes_of(right if fewer else left, self.summed)
        for one, factors in zip((left, right), self.free, strict=True):
            if takes_all(one, factors) and axes_of(one, factors) == axes_of(out, factors):
                return axes_of(one, factors)
        return None

    def as_result(self, tensors: Sequence[Tensor], sizes: Sizes, strict: bool) -> Tensor | None:
        """All devices split factors of the result, or summed factors if the result is whole."""
        left, right, out = tensors
        n = math.prod(map(self.axes.count, left.values()))
        if strict or out[COPIES] and is_split(out):
            return None
        for factors in (self.batch, *self.free):
            if self.count(out, factors) == n:
                return {f: out[f] for f in factors}
        for one, other in ((right, left), (left, right)):
            if (not is_split(out) and self.count(one, self.summed) == n and not is_split(other)
                    and self.elements(one, sizes, False) > self.elements(out, sizes, False)):
                return {f: one[f] for f in self.summed}
        return None

    def by_batch(self, tensors: Sequence[Tensor], sizes: Sizes, strict: bool) -> Tensor | None:
        """Groups along batch factors, where the result has as many tiles of them as an operand. Of
        operands with equal tiles the smaller follows the larger, and the result both; operands with
        different tiles follow the result.
        """
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
            if left is None or right is None:
                return None
            moved = self.aligned(out, left, factors, counts[0])
            group = {f: left[f] for f in factors}
            return None if moved is None else self.rest((left, right, moved), sizes, group)
        found = [self.as_batch(tensors[t], tensors[1 - t], out, t) for t in (0, 1)]
        if found[0] is None or found[1] is None or strict and found != [left, right]:
            return None
        return self.rest((found[0], found[1], out), sizes, {f: out[f] for f in factors})

    def as_batch(self, tensor: Tensor, other: Tensor, out: Tensor, t: int) -> Tensor | None:
        """An operand with the batch factors split as in the result, and other factors split less if
        need be.
        """
        if not is_split(tensor):
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
        """Factors that the result shares with one operand; the other operand is gathered along
        their axes.
        """
        out, counts = tensors[2], [self.count(tensors[t], self.free[t]) for t in (0, 1)]
        wanted = [self.count(out, self.free[t]) for t in (0, 1)]
        matching = [counts[t] == wanted[t] > 1 for t in (0, 1)]
        t, factors = 0, []
        if any(matching):
            moved = [counts[t] * self.elements(tensors[1 - t], sizes) for t in (0, 1)]
            t = 0 if matching[0] and (not matching[1] or moved[0] < moved[1]) else 1
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
        if found is None and is_split(other):
            wanted: Tensor = dict.fromkeys(other, ())
            used: set[str] = set()
            # the result comes first; a kernel of size 1 has dimensions that no other has
            for f in sorted(other, key=self.summed.__contains__):
                axes = (own if f in self.summed else out).get(f, ()) if f >= 0 else ()
                if used.isdisjoint(axes):
                    wanted[f] = axes
                    used.update(axes)
            wanted[COPIES] = tuple([a for a in self.axes.all if a not in used and any(
                [a in axes for axes in other.values()])])
            if is_split(wanted):
                found = self.gathered(wanted, own, out, group, sizes, t)
        return self.replicated(other, out, [*group]) if found is None else found

    def gathered(self, other: Tensor, own: Tensor, out: Tensor, group: Tensor, sizes: Sizes, t: int
                 ) -> Tensor | None:
        """The other operand without the axes of a group: by dropping copies, by gathering the
        dimensions that have only these axes, or by gathering its summed or free factors. None if it
        has no such.
        """
        taken = {a for axes in group.values() for a in axes}
        n, counts = self.count(group, [*group]), {f: self.axes.count(a) for f, a in other.items()}
        if not is_split(other):
            return None
        if other[COPIES] and counts[COPIES] % n == 0:
            for f in reversed(other):
                if counts[f] % n == 0 and taken.issubset(other[f]):
                    swapped = {**other, f: other[COPIES], COPIES: other[f]}
                    return {**swapped, COPIES: tuple(
                        [a for a in other[f] if a not in taken])}
            parts = self.axes.grouped(other[COPIES], n, counts[COPIES] // n)
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
        found = self.renumbered({f: () if f in dropped else axes for f, axes in other.items()}, out,
                                [*group])
        parts = self.axes.grouped(sum(group.values(), ()), *[counts[f] for f in dropped])
        if found is not None and parts is not None and is_split(found):
            self.arrive(t, {**found, **dict(zip(dropped, parts, strict=True))})
        return found

    def by_summed(self, tensors: Sequence[Tensor], sizes: Sizes, strict: bool) -> Tensor | None:
        """Groups along summed factors, where both operands have as many tiles of them: the smaller
        operand is split like the larger one, and the result becomes a sum over the group.
        """
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
        if left is None or right is None or strict and moved not in tensors:
            return None
        group = {f: left[f] for f in factors}
        return self.rest((left, right, self.sum_of(left, right, out, group)), sizes, group)

    def sum_of(self, left: Tensor, right: Tensor, out: Tensor, group: Tensor) -> Tensor:
        """The result of which the devices of a group compute a partial sum, over the axes of the
        group.
        """
        taken, n = {a for axes in group.values() for a in axes}, self.count(group, [*group])
        copies = self.axes.count(out[COPIES])
        if is_split(out) and (not out[COPIES] or copies % n):
            still_split = [t for t in (left, right) if any(
                [axes for f, axes in t.items() if f >= 0 and f not in group])]
            if len(still_split) == 1:
                axes_of = {f: still_split[0].get(f, ()) for f in out if f >= 0}
                if all([out[f][:len(axes)] == axes for f, axes in axes_of.items()]):
                    out = {**axes_of, COPIES: self.axes.others(axes_of.values())}
                    copies = self.axes.count(out[COPIES])
        if not is_split(out):
            return self.replicated(out, left, [*group])
        if out[COPIES] and copies % n == 0:
            parts = self.axes.grouped(out[COPIES], n, copies // n)
            if parts is not None:
                inner = {**out, COPIES: parts[1]}
                return inner if taken == {*parts[0]} else self.renumbered(inner, left, [*group]
                                                                          ) or inner
        inside = [f for f, axes in out.items() if axes and taken.issuperset(axes)]
        if self.count(out, inside) == n or n == math.prod(map(self.axes.count, out.values())):
            return {f: tuple([a for a in axes if a not in taken]) for f, axes in out.items()}
        for factors in (*self.free, self.batch):
            if self.count(out, factors) == n:
                inner = self.renumbered({**out, **dict.fromkeys(factors, ())}, left, [*group])
                parts = self.axes.grouped(sum(group.values(), ()),
                                          *[self.axes.count(out[f]) for f in factors])
                if inner is None or parts is None:
                    return self.replicated(out, left, [*group])
                self.left.append(self.over_groups(
                    {**inner, **dict(zip(factors, parts, strict=True))}))
                return inner
        return self.replicated(out, left, [*group])

    def without_copies(self, tensors: Sequence[Tensor], sizes: Sizes, strict: bool
                       ) -> Tensor | None:
        left, right, out = tensors
        if is_split(left) or is_split(right) or not out[COPIES] or not is_split(out):
            return None
        inner = {**out, COPIES: ()}
        return self.split([self.replicated(left, inner, ()), self.replicated(right, inner, ()),
                           inner], sizes)
