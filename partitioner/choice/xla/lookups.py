"""How XLA splits a lookup at indices: which axes each factor of it gets.

Groups of devices are taken off along factors that the array, its indices and the result share; then
along those of the array that are read whole, those that are looked up, and those of the indices, in
the order of what each needs: first memory, then exchanges. What is left over is looked up whole.
"""
from __future__ import annotations

import math

from ....ir.meshes.mesh import AbstractMesh
from ....ir.rules.factor import INDEXED
from ...factors import RuleInfo
from .groups import COPIES, DeviceGroups, Sizes, Tensor, is_split

Group = tuple[list[Tensor], Tensor]     # (array, indices, result) as its devices have them; axes


class LookupGroups(DeviceGroups):
    """The groups of a lookup. indexed: the factors along which single rows are read."""

    def __init__(self, info: RuleInfo, mesh: AbstractMesh) -> None:
        super().__init__(info, mesh)
        self.indexed = [f for f, factor in enumerate(info.factors)
                        if factor.kind == INDEXED and factor.leaves_sum and f in info.carried[0]]

    def split(self, tensors: list[Tensor], sizes: Sizes) -> Tensor:
        found = self.by_batch(tensors)
        if found is None:
            others = [self.by_free(tensors, 0), self.by_indexed(tensors), self.by_free(tensors, 1)]
            found = min([group for group in others if group is not None], default=None,
                        key=lambda group: self.cost(tensors, group, sizes))
        return {} if found is None else self.rest(found[0], sizes, found[1])

    def cost(self, before: list[Tensor], group: Group, sizes: Sizes) -> tuple[float, float]:
        """(Elements of the largest block, elements that move)."""
        tensors, axes = group
        blocks = [math.prod([sizes[f] / self.axes.count(axes.get(f, ())) for f in t if f >= 0])
                  for t in tensors]
        moved = [n for t, n in enumerate(blocks) if {**tensors[t], COPIES: ()} != {
            **before[t], COPIES: ()}]
        return max(blocks), sum(moved) + (blocks[2] if {*axes}.intersection(self.indexed) else 0)

    def by_batch(self, tensors: list[Tensor]) -> Group | None:
        array, indices, out = tensors
        factors, counts = self.batch, [self.count(t, self.batch) for t in tensors[:2]]
        if counts == [1, 1]:
            return None
        if not is_split(indices) or not is_split(array):
            have = array if not is_split(indices) else indices
            only = {f: have[f] if f in factors else () for f in (
                indices if have is array else array)}
            only[COPIES] = self.rest_of(have, only)
            array, indices = (array, only) if have is array else (only, indices)
        elif counts[0] < counts[1]:
            array = self.as_many(array, indices)
        elif counts[0] > counts[1]:
            indices = self.as_many(indices, array)
        else:
            array = self.aligned(array, indices, factors,
                                 [self.axes.count(indices[f]) for f in factors])
        if array is None or indices is None:
            return None
        group = {f: indices[f] for f in factors}
        return [array, indices, self.result_of(array, out, [*factors, *self.free[0]])], group

    def as_many(self, tensor: Tensor, like: Tensor) -> Tensor | None:
        """An operand whose copies cut batch factors into as many tiles as another one has."""
        counts = {f: self.axes.count(axes) for f, axes in tensor.items()}
        for f in self.batch:
            ratio, rest = divmod(self.axes.count(like[f]), counts[f])
            if rest or counts[COPIES] % ratio:
                return None
            counts[f], counts[COPIES] = counts[f] * ratio, counts[COPIES] // ratio
        return self.aligned(tensor, like, self.batch, [*counts.values()])

    def by_free(self, tensors: list[Tensor], t: int) -> Group | None:
        """Along factors that the result has of one operand; the other is copied."""
        factors = [f for f in self.free[t] if tensors[t][f]]
        if not factors:
            return None
        group = {f: tensors[t][f] for f in factors}
        found = [*tensors[:2], self.result_of(tensors[t], tensors[2], self.free[t])]
        found[1 - t] = self.copied(tensors[1 - t], tensors[t], group)
        return found, group

    def by_indexed(self, tensors: list[Tensor]) -> Group | None:
        array, indices, out = tensors
        group = {f: array[f] for f in self.indexed if array[f]}
        if not group:
            return None
        inner = [self.copied(t, array, group) for t in (indices, out)]
        factors = self.free[1]
        if is_split(inner[0]) and not is_split(inner[1]):
            inner[1] = self.copied(self.result_of(indices, self.whole(out), factors), array, group)
        elif is_split(inner[1]) and not is_split(inner[0]):
            inner[0] = self.copied(self.result_of(out, self.whole(indices), factors), array, group)
        return [array, *inner], group

    # -- devices ---------------------------------------------------------------------------------

    def whole(self, tensor: Tensor) -> Tensor:
        axes = {a for some in tensor.values() for a in some}
        return {**dict.fromkeys(tensor, ()), COPIES: tuple([a for a in self.axes.all if a in axes])}

    def rest_of(self, like: Tensor, cut: Tensor) -> tuple[str, ...]:
        """The axes of one tensor that do not cut another."""
        used = {a for f, axes in cut.items() if f >= 0 for a in axes}
        every = {a for axes in like.values() for a in axes}
        return tuple([a for a in self.axes.all if a in every and a not in used])

    def result_of(self, source: Tensor, out: Tensor, factors: list[int]) -> Tensor:
        """A tensor with these factors as another one has them, and others as it has them itself
        where their axes are free.
        """
        found = {f: source[f] if f in factors and f in source else () for f in out}
        used = {a for axes in found.values() for a in axes}
        for f, axes in out.items():
            if f >= 0 and f not in factors and used.isdisjoint(axes):
                found[f] = axes
        found[COPIES] = self.rest_of(source, found)
        return found

    def copied(self, tensor: Tensor, like: Tensor, group: Tensor) -> Tensor:
        """A tensor of which each group of devices has a copy: some of its copies, or if they are
        too few, what dimensions have in more tiles than that leaves them.
        """
        left = n = self.count(group, [*group])
        taken = self.axes.primes([a for axes in group.values() for a in axes])
        counts = {f: self.axes.count(axes) for f, axes in tensor.items()}
        if counts[COPIES] % n == 0:
            left, counts[COPIES] = 1, counts[COPIES] // n
        else:
            common = math.gcd(n, counts[COPIES])
            left, counts[COPIES] = n // common, counts[COPIES] // common
            for f in tensor:
                lent = math.gcd(counts[f], left) if f >= 0 else 1
                left, counts[f] = left // lent, counts[f] // lent
        if left > 1 or not is_split(tensor):
            return self.replicated(tensor, like, ())
        kept = {f: self.axes.parted(axes, counts[f], self.axes.count(axes) // counts[f])
                for f, axes in tensor.items() if f >= 0}
        if None not in kept.values():
            inner = {f: parts[0] for f, parts in kept.items() if parts}
            if not {a for axes in inner.values() for a in axes}.intersection(taken):
                rest = self.rest_of(tensor, inner)
                return {**inner, COPIES: rest}
        found = self.axes.parted(sum([like[f] for f in like if f not in group], ()),
                                 *counts.values())
        if found is None:
            return self.replicated(tensor, like, ())
        inner = dict(zip(counts, found, strict=True))
        return {**inner, COPIES: (*inner[COPIES], *taken)}
