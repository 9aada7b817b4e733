"""How XLA splits a lookup at indices or an update at indices: which axes each factor gets.

Groups of devices are separated along the factors that the array, its indices and the result share;
then along those of the array that are read whole, those that are looked up, and those of the
indices, in order of what each needs: memory first, then exchanges. What remains is looked up whole.
In an update, the updates take the place of the result.
"""
from __future__ import annotations

import math

from ....ir.meshes.mesh import AbstractMesh
from ....ir.rules.factor import INDEXED, REDUCE
from ...factors import RuleInfo
from ...redistribution.steps_of_xla import Steps
from .groups import COPIES, DeviceGroups, Sizes, Tensor, is_split

Group = tuple[list[Tensor], Tensor]     # (array, indices, result) as its devices have them; axes


class LookupGroups(DeviceGroups):
    """The groups of a lookup. indexed: the factors along which single rows are read. writes:
    whether the rows are written instead. replaces: likewise, where of several for one place the
    last counts. masked: the layouts of indices and result where groups have different rows, and
    mask what others have; None if all have the same.
    """

    def __init__(self, info: RuleInfo, mesh: AbstractMesh) -> None:
        super().__init__(info, mesh)
        self.indexed = [f for f, factor in enumerate(info.factors)
                        if factor.kind == INDEXED and factor.operator and f in info.carried[0]]
        self.writes, self.steps = info.operands > 2, Steps(mesh)
        self.replaces = self.writes and all(f.kind != REDUCE for f in info.factors)
        self.masked: tuple[Tensor, Tensor] | None = None

    def split(self, tensors: list[Tensor], sizes: Sizes) -> Tensor:
        """The axes of each factor for the devices of a group: along batch factors, or else along
        those of the other kinds that cost least.
        """
        found = self.by_batch(tensors)
        if found is None:
            others = [self.by_free(tensors, 0), self.by_indexed(tensors)]
            if not self.replaces:
                others.append(self.by_free(tensors, 1))
            found = min([group for group in others if group is not None], default=None,
                        key=lambda group: self.cost(tensors, group, sizes))
        if found is None:
            return {}
        result = found[0][0 if self.writes else 2]
        self.left.append(self.over_groups(result))
        if not found[1].keys().isdisjoint(self.indexed):
            self.masked = self.over_groups(found[0][1]), self.over_groups(found[0][2])
        return self.rest(found[0], sizes, found[1])

    def cost(self, before: list[Tensor], group: Group, sizes: Sizes) -> tuple[float, float]:
        """(Elements that the largest operation reads and writes, elements that move) if the rest of
        the equation is computed whole. Sums and updates are made in place.
        """
        tensors, axes = group
        inside = {f: n / self.axes.count(axes.get(f, ())) for f, n in sizes.items()}
        blocks = [self.elements(tensor, sizes) for tensor in tensors]
        whole = [self.elements(tensor, inside, False) for tensor in tensors]
        result, read = (0, 3) if self.writes else (2, 2)
        steps = self.exchanges(tensors[result], before[result], sizes)
        for t in range(read):
            steps += self.exchanges(before[t], tensors[t], sizes)
            steps += [(blocks[t], whole[t])] if blocks[t] < whole[t] else []
        memory = [sum(whole), *[a + b for a, b in steps if a <= b]]
        moved = [b if a == b else b - a for a, b in steps if a <= b]
        if not axes.keys().isdisjoint(self.free[1] if self.writes else self.indexed):
            memory.append(blocks[result])
            moved.append(2 * blocks[result])
        return max(memory), sum(moved)

    def exchanges(self, old: Tensor, new: Tensor, sizes: Sizes) -> list[tuple[float, float]]:
        """Elements of the blocks before and after each exchange between two layouts."""
        factors, now, found = [f for f in old if f >= 0], old, []
        before, after = [(*[t[f] for f in factors], t[COPIES]) for t in (old, new)]
        for tiles in self.steps.path(before, after) or ():
            then = {**dict(zip(factors, tiles, strict=False)), COPIES: ()}
            if then != {**now, COPIES: ()}:
                found.append((self.elements(now, sizes), self.elements(then, sizes)))
            now = then
        return found

    def by_batch(self, tensors: list[Tensor]) -> Group | None:
        """Groups along the factors that array and indices share: the operand with fewer tiles is
        split as the other one is. None if neither is split along them, or XLA finds no such split.
        """
        array, indices, out = tensors
        factors, counts = self.batch, [self.count(t, self.batch) for t in tensors[:2]]
        if counts == [1, 1]:
            return None
        if not is_split(indices):
            indices = self.only(array, indices, factors)
        elif not is_split(array):
            array = self.only(indices, array, factors)
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
        out = self.refined(self.only(indices, out, [*factors, *self.free[1]]),
                           self.only(array, out, self.free[0]))
        return [array, indices, out], group

    def as_many(self, tensor: Tensor, like: Tensor) -> Tensor | None:
        """An operand whose copies split batch factors into as many tiles as those of another
        operand.
        """
        counts = {f: self.axes.count(axes) for f, axes in tensor.items()}
        for f in self.batch:
            ratio, rest = divmod(self.axes.count(like[f]), counts[f])
            if rest or counts[COPIES] % ratio:
                return None
            counts[f], counts[COPIES] = counts[f] * ratio, counts[COPIES] // ratio
        return self.aligned(tensor, like, self.batch, [*counts.values()])

    def by_free(self, tensors: list[Tensor], t: int) -> Group | None:
        """Along factors that the result shares with one operand only; the other operand is
        replicated.
        """
        factors = self.free[t]
        if not self.count(tensors[t], factors) > 1:
            return None
        own, out = tensors[t], tensors[2]
        if t == 1:                          # as the result has them, if in more tiles
            own = self.refined(own, self.only(out, own, factors))
        group = {f: own[f] for f in factors}
        found = [*tensors[:2], self.refined(self.only(own, out, factors), out)]
        found[t], found[1 - t] = own, self.copied(tensors[1 - t], found[2], group)
        return found, group

    def by_indexed(self, tensors: list[Tensor]) -> Group | None:
        """Groups along the factors that are looked up, over which indices and result are copied; of
        these, the one that is not split follows the other.
        """
        array, indices, out = tensors
        group = {f: array[f] for f in self.indexed if array[f]}
        if not group:
            return None
        inner = [self.copied(t, array, group) for t in (indices, out)]
        factors = self.free[1]
        if is_split(inner[0]) and not is_split(inner[1]):
            inner[1] = self.copied(self.only(indices, out, factors), array, group)
        elif is_split(inner[1]) and not is_split(inner[0]):
            inner[0] = self.copied(self.only(out, indices, factors), array, group)
        return [array, *inner], group

    # -- devices ---------------------------------------------------------------------------------

    def rest_of(self, like: Tensor, cut: Tensor) -> tuple[str, ...]:
        """The axes of one tensor that do not split another."""
        used = {a for f, axes in cut.items() if f >= 0 for a in axes}
        every = {a for axes in like.values() for a in axes}
        return tuple([a for a in self.axes.all if a in every and a not in used])

    def refined(self, tensor: Tensor, other: Tensor) -> Tensor:
        """A tensor with the additional axes of another one; unchanged if the two disagree."""
        found = {f: max(axes, other.get(f, ()), key=len) for f, axes in tensor.items() if f >= 0}
        used = sum(found.values(), ())
        fits = len({*used}) == len(used) and not any([
            part and axes != part for f, axes in found.items()
            for part in (tensor[f], other.get(f, ()))])
        return {**found, COPIES: self.rest_of(tensor, found)} if fits else tensor

    def only(self, source: Tensor, like: Tensor, factors: list[int]) -> Tensor:
        """A tensor with the dimensions of another one, split along these factors alone."""
        found = {f: source[f] if f in factors else () for f in like if f >= 0}
        return {**found, COPIES: self.rest_of(source, found)}

    def copied(self, tensor: Tensor, like: Tensor, group: Tensor) -> Tensor:
        """A tensor of which every group of devices has a copy: it uses some of the copies there are
        and, if these are too few, gives up tiles of dimensions.
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
        split_counts = {f: self.axes.grouped(axes, counts[f], self.axes.count(axes) // counts[f])
                        for f, axes in tensor.items() if f >= 0}
        if None not in split_counts.values():
            inner = {f: parts[0] for f, parts in split_counts.items() if parts}
            if not {a for axes in inner.values() for a in axes}.intersection(taken):
                rest = self.rest_of(tensor, inner)
                return {**inner, COPIES: rest}
        found = self.axes.grouped(sum([like[f] for f in like if f not in group], ()),
                                  *counts.values())
        if found is None:
            return self.replicated(tensor, like, ())
        inner = dict(zip(counts, found, strict=True))
        return {**inner, COPIES: (*inner[COPIES], *taken)}
