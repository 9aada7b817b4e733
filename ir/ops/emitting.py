"""Building blocks for emitters of per-device equations.

A `localize` rule works on blocks: it compares indices with the position of its block, masks what
other devices own, and gathers small summaries of all blocks. `Emitting(context)` has these as
methods; every operand and result is an atom of the per-device program.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..op import OPS, LocalizeContext
from ..program import Atom, Literal
from ..types import Shape, array_type
from .derivatives import slice_along
from .gather_numbers import GatherDimensionNumbers, GatherScatterMode

INT32 = np.dtype(np.int32)


def literal(value: Any, dtype: Any) -> Literal:
    """A rank-0 constant of a program."""
    dtype = np.dtype(dtype)
    return Literal(np.asarray(value, dtype)[()], array_type((), dtype))


class Emitting:
    """Appends equations to the per-device program of `context`."""

    def __init__(self, context: LocalizeContext) -> None:
        self.context = context
        self.mesh = context.result_types[0].mesh

    def call(self, name: str, *operands: Atom, **params: Any) -> Atom:
        """The one result of an op on blocks."""
        return self.context.emit(OPS[name], list(operands), params)[0]

    def size(self, axes: Sequence[str]) -> int:
        """How many devices there are along `axes`."""
        return math.prod(map(self.mesh.axis_size, axes))

    def full(self, value: Any, shape: Shape, dtype: Any) -> Atom:
        """An array of one value."""
        return self.broadcast(literal(value, dtype), shape, ())

    def broadcast(self, x: Atom, shape: Shape, dims: Sequence[int]) -> Atom:
        """`x` with its dimensions at `dims` of a larger shape."""
        if x.aval.shape == tuple(shape):
            return x
        return self.call("broadcast_in_dim", x, shape=tuple(shape),
                         broadcast_dimensions=tuple(dims), sharding=None)

    def iota(self, shape: Shape, dim: int) -> Atom:
        """int32 positions along a dimension."""
        return self.call("iota", dtype=INT32, shape=tuple(shape), dimension=dim, sharding=None)

    def convert(self, x: Atom, dtype: Any) -> Atom:
        """`x` in another dtype."""
        if x.aval.dtype == dtype:
            return x
        return self.call("convert_element_type", x, new_dtype=np.dtype(dtype), weak_type=False,
                         sharding=None)

    def index(self, x: Atom, size: int) -> Atom:
        """Positions in a dimension of this size as int32; out-of-bounds ones stay so."""
        dtype = x.aval.dtype
        if dtype.itemsize > 4 or (dtype.kind == "u" and dtype.itemsize == 4):
            lowest = 0 if dtype.kind == "u" else -1
            x = self.call("clamp", literal(lowest, dtype), x, literal(size, dtype))
        return self.convert(x, INT32)

    def gathered(self, x: Atom, axes: tuple[str, ...]) -> Atom:
        """[devices along axes, ...]: the blocks of all of them, in order."""
        return self.call("all_gather_invariant", x, axis_name=axes, axis_size=self.size(axes),
                         all_gather_dimension=0, tiled=False)

    def part(self, x: Atom, dim: int, start: int, stop: int) -> Atom:
        """Positions start to stop (not included) along a dimension."""
        if (start, stop) == (0, x.aval.shape[dim]):
            return x
        return self.call("slice", x, **slice_along(x.aval.shape, dim, start, stop))

    def part_from(self, x: Atom, dim: int, start: Atom, count: int) -> Atom:
        """`count` positions along a dimension from an int32 value on."""
        shape = x.aval.shape
        starts = [start if d == dim else literal(0, INT32) for d in range(len(shape))]
        sizes = tuple(count if d == dim else n for d, n in enumerate(shape))
        return self.call("dynamic_slice", x, *starts, slice_sizes=sizes)

    def without(self, x: Atom, dim: int) -> Atom:
        """`x` without a dimension of size one."""
        return self.call("squeeze", x, dimensions=(dim,))

    def select(self, where: Atom, x: Atom, otherwise: Atom) -> Atom:
        """`x` where the mask holds; all of one shape."""
        return self.call("select_n", where, otherwise, x)

    def rows(self, x: Atom, dim: int, places: Atom) -> Atom:
        """`x` at int32 positions [m] along a dimension, which must be inside: m of them there."""
        rank = len(x.aval.shape)
        numbers = GatherDimensionNumbers(tuple(d for d in range(rank) if d != dim), (dim,), (dim,))
        m = places.aval.shape[0]
        sizes = tuple(1 if d == dim else n for d, n in enumerate(x.aval.shape))
        return self.call("gather", x, self.broadcast(places, (m, 1), (0,)),
                         dimension_numbers=numbers, slice_sizes=sizes, unique_indices=False,
                         indices_are_sorted=False, mode=GatherScatterMode.CLIP, fill_value=None)

    def rows_inside(self, x: Atom, dim: int, places: Atom) -> Atom:
        """`x` at int32 positions [m] along a dimension: m of them there, zero where it has none."""
        inside = self.clamped(places, x.aval.shape[dim] - 1)
        found = self.rows(x, dim, inside)
        shape = found.aval.shape
        return self.select(self.broadcast(self.call("eq", places, inside), shape, (dim,)), found,
                           self.full(0, shape, x.aval.dtype))

    def elements(self, x: Atom, dim: int, places: Atom) -> Atom:
        """The element of `x` at the place along a dimension that `places` has for each of the
        others; all of them inside.
        """
        shape = places.aval.shape
        others = tuple(d for d in range(len(shape) + 1) if d != dim)
        numbers = GatherDimensionNumbers((), (dim,), (dim,), others, tuple(range(len(shape))))
        return self.call("gather", x, self.broadcast(places, (*shape, 1), range(len(shape))),
                         dimension_numbers=numbers, slice_sizes=(1,) * len(x.aval.shape),
                         unique_indices=False, indices_are_sorted=False,
                         mode=GatherScatterMode.PROMISE_IN_BOUNDS, fill_value=None)

    def clamped(self, x: Atom, highest: int) -> Atom:
        """An int32 value moved into 0 .. highest."""
        return self.call("clamp", literal(0, INT32), x, literal(max(highest, 0), INT32))

    def inside(self, x: Atom, stop: int) -> Atom:
        """Whether int32 values are in 0 .. stop (exclusive), which is at least 1."""
        return self.call("eq", x, self.clamped(x, stop - 1))

    def minus(self, x: Atom, y: Atom) -> Atom:
        """int32 x - y, where y has rank 0."""
        if isinstance(y, Literal) and not y.val:
            return x
        return self.call("sub", x, self.broadcast(y, x.aval.shape, ()))
