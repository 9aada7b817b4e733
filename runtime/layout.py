"""Layouts: how one numpy array holds a value of every device.

A per-device value has a local shape, and differs over some mesh axes. Each of these is either *in
place* in a dimension (the array has that dimension whole, with the axis as its major part, so that
the array is the global one) or *stacked* (a leading dimension of its own). An axis over which the
value does not differ does not appear: such values are held and computed once.

With X=2, Y=4 and a block of shape [8, 3]:

    stack=(),     split=(("X",), ())        array [16, 3]        dim 0 is [X, 8]
    stack=("Y",), split=((), ())            array [4, 8, 3]
    stack=("Y",), split=((), ("X",))        array [4, 8, 6]

In which dimension an axis is in place is a choice of the layout, not a property of the value. To go
from one layout to another is to split, permute and merge dimensions (`rearrangement`), which numpy
mostly does without a copy.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.support.caches import cached
from ..ir.support.named_tuple import NamedTuple
from ..ir.types import Shape

Atoms = tuple[str, ...]
Label = Any                              # an atom, a dimension number, or something private
Dims = tuple[tuple[Label, ...], ...]     # of an array: each dimension's labels, major to minor
Function = Callable[..., Any]


class Layout(NamedTuple):
    """Where the axes of a value are in its array.

    stack: leading dimensions. split: for each dimension the axes in place there, major to minor.
    summed: axes over which the array holds the sum (or maximum, ...) of what the devices would
    hold; only an op that combines the value over these axes may use it
    (runtime/simulation/device_sums.py).
    """
    stack: Atoms
    split: tuple[Atoms, ...]
    summed: frozenset[str] = frozenset()

    @property
    def atoms(self) -> set[str]:
        """The axes over which the array differs."""
        return {*self.stack, *(a for axes in self.split for a in axes)}

    @property
    def dims(self) -> Dims:
        """The labels of the array's dimensions: atoms, and numbers of the value's dimensions."""
        return (*((a,) for a in self.stack), *((*axes, d) for d, axes in enumerate(self.split)))

    def without(self, atoms: frozenset[str] | set[str]) -> Layout:
        stack, split, summed = self
        return Layout(tuple([a for a in stack if a not in atoms]) if stack else stack,
                      tuple([tuple([a for a in axes if a not in atoms]) if axes else axes
                             for axes in split]), summed)


@cached(64)
def whole(ndim: int) -> Layout:
    """The layout of a value that is the same on all devices."""
    return Layout((), ((),) * ndim)


def array_shape(layout: Layout, local: Shape, size: Mapping[str, int]) -> Shape:
    """The shape of the array for blocks of shape `local`."""
    found = split_shape(layout.split, local, size)
    return (*[size[a] for a in layout.stack], *found) if layout.stack else found


def split_shape(split: Sequence[Atoms], local: Shape, size: Mapping[str, int]) -> Shape:
    """The shape of the array for blocks of shape `local` with these axes in place."""
    found = list(local)
    for d, axes in enumerate(split):
        for a in axes:
            found[d] *= size[a]
    return tuple(found)


class Reshaped(NamedTuple):
    """The function that reshapes an array to `shape`."""
    shape: Shape

    def __call__(self, x: Any) -> Any:
        return x.reshape(self.shape)


@cached(4096)
def rearrangement(have: Dims, want: Dims, sizes: tuple[tuple[Label, int], ...]
                  ) -> Function | None:
    """What brings an array with dimensions `have` to dimensions `want`; None for the identity.

    Labels that only `want` has are repeated; those that only `have` has are of size 1. A dimension
    of `want` without labels has size 1.
    """
    size = dict(sizes)
    source = [x for d in have for x in d]
    target = [x for d in want for x in d]
    present = set(source)
    wanted = set(target)
    common = [x for x in target if x in present]
    source_common = [x for x in source if x in wanted]
    if any(size[x] != 1 for x in source if x not in wanted):
        raise ValueError(f"labels {[x for x in source if x not in wanted]} have no place in {want}")
    final = tuple(math.prod([size[x] for x in d]) for d in want)
    if 0 in final:
        return lambda x: np.empty(final, x.dtype)
    start = tuple(math.prod([size[x] for x in d]) for d in have)
    split = tuple(size[x] for x in source_common)
    place = {x: i for i, x in enumerate(source_common)}
    order = tuple(place[x] for x in common)
    missing = len(common) < len(target) and any(size[x] != 1 for x in target if x not in present)
    if not missing:
        moving = [i for i in order if split[i] != 1]
        if moving == sorted(moving):
            if start == final:
                return None
            return Reshaped(final)
        return lambda x: x.reshape(split).transpose(order).reshape(final)
    gaps = tuple(size[x] if x in present else 1 for x in target)
    full = tuple(size[x] for x in target)
    return lambda x: np.broadcast_to(
        x.reshape(split).transpose(order).reshape(gaps), full).reshape(final)


def label_sizes(dims: Sequence[Sequence[Label]], local: Shape, size: Mapping[str, int],
                more: Mapping[Label, int] | None = None) -> tuple[tuple[Label, int], ...]:
    """The sizes of all labels: atoms from the mesh, dimension numbers from the local shape."""
    out: dict[Label, int] = {}
    for labels in dims:
        for x in labels:
            if isinstance(x, str):
                out[x] = size[x]
            elif isinstance(x, int):
                out[x] = local[x]
    if more:
        out.update(more)
    return tuple(out.items())
