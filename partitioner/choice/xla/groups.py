"""Groups of devices, as XLA's partitioner separates them one after the other.

Devices that share tiles along some factors of an equation form a group. What remains of the
equation is split among the devices of one group, in the same way for each. A tensor is described by
the axes of its factors, in parts of prime size, and by the axes along which it is replicated.
"""
from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

from ....ir.meshes.mesh import AbstractMesh
from ...factors import Axes, RuleInfo
from ...redistribution.prime_axes import PrimeAxes

COPIES = -1
Tensor = dict[int, Axes]        # by factor, in the order of dimensions; last the axes of copies
LayoutPath = list[tuple[Tensor | None, Hashable]]      # None: as it is taken
Sizes = Mapping[int, float]     # of factors, as a group of devices has them


def is_split(tensor: Tensor) -> bool:
    """Is any dimension split?"""
    return any([axes for f, axes in tensor.items() if f >= 0])


class DeviceGroups:
    """The groups that are separated for an equation with two operands and a result, or with three
    operands, of which the last is written into the first and takes the place of the result.

    batch: factors of all three; free: for each operand, those that it shares with the result.
    groups: for each factor, the axes along which groups have been separated so far; inside: these
    axes, group by group. paths: for each operand the layouts through which it passes, each with the
    groups inside of which the operand is brought there. left: the layouts through which the result
    passes as it leaves the groups.
    """

    def __init__(self, info: RuleInfo, mesh: AbstractMesh) -> None:
        self.info, self.axes = info, PrimeAxes(mesh)
        left, right, out = info.carried[:3]
        self.batch = sorted(left & right & out)
        self.free = (sorted((left - right) & out), sorted((right - left) & out))
        self.groups: Tensor = {}
        self.inside: tuple[Axes, ...] = ()
        self.paths: list[LayoutPath] = [[] for _ in range(info.operands)]
        self.left: list[Tensor] = []

    def run(self, parts: Sequence[Mapping[int, Axes]]) -> tuple[Tensor, list[LayoutPath]]:
        """(The axes of each factor; for each operand and for the result, the layouts through which
        it passes, each with the groups around it). parts: the axes that operands and result have.
        """
        tensors = [self.tensor(t, part) for t, part in enumerate(parts[:3])]
        found = self.split(tensors, {f: float(x.size) for f, x in enumerate(self.info.factors)})
        paths: list[LayoutPath] = [
            [*[(tensor and self.merged(tensor), inside) for tensor, inside in path],
             (None, self.inside)] for path in self.paths]
        back: LayoutPath = [(self.merged(tensor), ()) for tensor in reversed(self.left)]
        return self.merged(found), [*paths, back]

    def split(self, tensors: Sequence[Tensor], sizes: Sizes) -> Tensor:
        """The axes of each factor for the devices of a group."""
        raise NotImplementedError

    def merged(self, tensor: Tensor) -> Tensor:
        """The tensor with the parts of each axis merged again, without its replicated axes."""
        return {f: self.axes.merged(axes) for f, axes in tensor.items() if axes and f >= 0}

    def tensor(self, t: int, part: Mapping[int, Axes]) -> Tensor:
        """An operand or the result, from the axes of its factors."""
        found = {f: self.axes.primes(part.get(f, ())) for f, _, _ in self.info.places[t]}
        return {**found, COPIES: self.axes.others(found.values())}

    def count(self, tensor: Tensor, factors: Sequence[int]) -> int:
        """Into how many tiles factors are split."""
        return math.prod([self.axes.count(tensor[f]) for f in factors])

    def elements(self, tensor: Tensor, sizes: Sizes, split: bool = True) -> float:
        """The elements of a block, or of what a whole group holds."""
        return math.prod([sizes[f] / (self.axes.count(axes) if split else 1)
                          for f, axes in tensor.items() if f >= 0])

    def rest(self, tensors: Sequence[Tensor], sizes: Sizes, group: Tensor) -> Tensor:
        """Separate a group; the axes of each factor for it and for what is left."""
        for t in range(len(self.paths)):
            self.arrive(t, tensors[t])
        self.groups = {**self.groups, **group}
        self.inside = (*self.inside, sum(group.values(), ()))
        taken = {*self.inside[-1]}
        inner = [{f: () if f in group else axes for f, axes in t.items()} for t in tensors]
        for tensor in inner:
            tensor[COPIES] = tuple([a for a in tensor[COPIES] if a not in taken])
        found = self.split(inner, {f: n / self.axes.count(group.get(f, ()))
                                   for f, n in sizes.items()})
        return {**found, **group}

    def arrive(self, t: int, tensor: Tensor) -> None:
        """Note that an operand is brought to a layout inside the groups separated so far."""
        self.paths[t].append((self.over_groups(tensor), self.inside))

    def over_groups(self, tensor: Tensor) -> Tensor:
        """A layout inside the groups separated so far, as a layout over all devices."""
        return {f: self.groups.get(f, axes) for f, axes in tensor.items()}

    # -- devices ---------------------------------------------------------------------------------

    def replicated(self, tensor: Tensor, like: Tensor, group: Sequence[int]) -> Tensor:
        """A replicated tensor, on the devices of the groups that these factors of another tensor
        form.
        """
        axes = tuple([a for f, axes in like.items() if f not in group for a in axes])
        return {**dict.fromkeys(tensor, ()), COPIES: axes}

    def renumbered(self, tensor: Tensor, like: Tensor, group: Sequence[int]) -> Tensor | None:
        """A tensor on the devices of the groups that these factors of another tensor form, in its
        order.
        """
        found = self.axes.grouped(sum([like[f] for f in like if f not in group], ()),
                                  *map(self.axes.count, tensor.values()))
        return None if found is None else dict(zip(tensor, found, strict=True))

    def aligned(self, tensor: Tensor, like: Tensor, factors: Sequence[int],
                counts: Sequence[int] = ()) -> Tensor | None:
        """A tensor whose tiles along these factors are on the same devices as another's. counts:
        the number of its tiles along each of these factors, or along all factors.
        """
        own = {f: self.axes.count(axes) for f, axes in tensor.items()}
        own.update(zip(own if len(counts) == len(own) else factors, counts, strict=False))
        shaped = self.axes.grouped(sum(tensor.values(), ()), *own.values())
        if shaped is None:
            return None
        tensor = dict(zip(tensor, shaped, strict=True))
        if all([tensor[f] == like[f] for f in factors]):
            return tensor
        inner = self.renumbered({f: () if f in factors else axes for f, axes in tensor.items()},
                                like, factors)
        return None if inner is None else {**inner, **{f: like[f] for f in factors}}
