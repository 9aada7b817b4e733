"""Sorting along a split dimension without gathering it: columnsort.

Blocks are the columns of a matrix. Each is sorted, dealt out evenly to all (so that every device
has a fair sample), sorted, collected, and sorted again: then every element is within (p - 1)^2
places of where it belongs, and neighbours settle their edges. All shapes are known while compiling,
whatever the data; two all-to-alls and the edges are moved instead of p - 1 blocks.
Source: Leighton, "Tight Bounds on the Complexity of Parallel Sorting", IEEE Trans. Computers 1985;
the last three of its eight steps are done on the edges alone.

Equal elements that can be told apart keep their order by their position as a further key. Zeros of
both signs are the only such floats: they are sorted as integers, of which zeros have one for each
position.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import issubdtype
from ...op import OPS, LocalizeContext
from ...program import Atom
from ..emitting import INT32, Emitting, literal
from .row_exchange_plan import Piece, Wanted, plain

_F32 = np.dtype(np.float32)
_MOST_ZEROS = 1 << 22           # positions that fit, with a sign, where float32 has its NaNs
_NAN, _SIGN_OFF = 0x7FC00000, 0x7FFFFFFF


def elements_received(block: int, rows: int, devices: int) -> int:
    """Elements of one operand that a device receives. block: of its elements; rows: along the
    dimension."""
    return 2 * (devices - 1) * block // devices + edge_elements(block, rows, devices)


def edge_elements(block: int, rows: int, devices: int) -> int:
    """Elements among those received that are edges of the neighbours' blocks."""
    return 2 * (devices - 1) ** 2 * (block // max(rows, 1))


def column_sort(context: LocalizeContext, axes: tuple[str, ...], dimension: int, num_keys: int,
                is_stable: bool) -> list[Atom]:
    """The sorted blocks of the operands of a `sort` whose dimension is split over `axes`."""
    out = Emitting(context)
    operands = list(context.operands)
    sorting = _Columns(out, context, axes, dimension)
    told_apart = len(operands) > 1 or operands[0].aval.dtype.kind not in "biu"
    if not is_stable or not told_apart:
        return sorting.run(operands, num_keys)
    size = context.operand_types[0].shape[dimension]
    coded = len(operands) == 1 and _has_code(operands[0].aval.dtype) and size < _MOST_ZEROS
    position = sorting.positions(operands[0].aval.shape)
    if coded:
        code, decode = _coded(out, operands[0], position)
        return [decode(sorting.run([code], 1)[0])]
    done = sorting.run([*operands[:num_keys], position, *operands[num_keys:]], num_keys + 1)
    return [*done[:num_keys], *done[num_keys + 1:]]


class _Columns:
    """The steps, on the device's block of each operand."""

    def __init__(self, out: Emitting, context: LocalizeContext, axes: tuple[str, ...],
                 dimension: int) -> None:
        self.out, self.context, self.axes, self.dim = out, context, axes, dimension
        self.devices = out.size(axes)
        self.rows = context.local_operand_shapes[0][dimension]
        self.edge = (self.devices - 1) ** 2

    def positions(self, shape: tuple[int, ...]) -> Atom:
        """int32: where each element is in the whole dimension."""
        offset = self.context.block_offset(self.axes, self.rows)
        return self.out.call("add", self.out.iota(shape, self.dim),
                             self.out.broadcast(offset, shape, ()))

    def run(self, xs: list[Atom], num_keys: int) -> list[Atom]:
        xs = [self.dealt(x) for x in self.sorted(xs, num_keys)]
        xs = [self.collected(x) for x in self.sorted(xs, num_keys)]
        return self.with_sorted_edges(self.sorted(xs, num_keys), num_keys)

    def sorted(self, xs: Sequence[Atom], num_keys: int) -> list[Atom]:
        return self.context.emit(OPS["sort"], list(xs), {
            "dimension": self.dim, "is_stable": False, "num_keys": num_keys})

    def dealt(self, x: Atom) -> Atom:
        """Element i goes to device i mod p."""
        return self.exchanged(self.transposed(x, self.rows // self.devices, self.devices))

    def collected(self, x: Atom) -> Atom:
        """The inverse of `dealt`."""
        return self.transposed(self.exchanged(x), self.devices, self.rows // self.devices)

    def exchanged(self, x: Atom) -> Atom:
        return self.out.call("all_to_all", x, axis_name=self.axes, axis_size=self.devices,
                             split_axis=self.dim, concat_axis=self.dim, tiled=True)

    def transposed(self, x: Atom, n: int, m: int) -> Atom:
        """The dimension as n times m, transposed."""
        shape, d = x.aval.shape, self.dim
        order = [*range(d), d + 1, d, *range(d + 2, len(shape) + 1)]
        x = self.reshaped(x, (*shape[:d], n, m, *shape[d + 1:]))
        return self.reshaped(self.out.call("transpose", x, permutation=tuple(order)), shape)

    def reshaped(self, x: Atom, shape: tuple[int, ...]) -> Atom:
        return self.out.call("reshape", x, new_sizes=shape, dimensions=None, sharding=None)

    def with_sorted_edges(self, xs: list[Atom], num_keys: int) -> list[Atom]:
        """Neighbours sort the ends of their blocks together."""
        out, edge, rows, d = self.out, self.edge, self.rows, self.dim
        whole = (Piece(0, rows * self.devices, 0, 0, 1),)
        wanted = plain((Wanted(rows, -edge, edge, whole), Wanted(rows, rows, edge, whole)))
        others = [out.call("exchange_rows", x, axis_name=self.axes, axis_size=self.devices,
                           dimension=d, parts=(rows,), wanted=wanted) for x in xs]
        low = self.sorted([out.call("concatenate", out.part(y, d, 0, edge),
                                    out.part(x, d, 0, edge), dimension=d)
                           for x, y in zip(xs, others, strict=True)], num_keys)
        high = self.sorted([out.call("concatenate", out.part(x, d, rows - edge, rows),
                                     out.part(y, d, edge, 2 * edge), dimension=d)
                            for x, y in zip(xs, others, strict=True)], num_keys)
        index = self.context.block_offset(self.axes, 1)
        found = []
        for x, a, b in zip(xs, low, high, strict=True):
            first, last = out.part(x, d, 0, edge), out.part(x, d, rows - edge, rows)
            first = self.own_at(index, 0, first, out.part(a, d, edge, 2 * edge))
            last = self.own_at(index, self.devices - 1, last, out.part(b, d, 0, edge))
            middle = [out.part(x, d, edge, rows - edge)] if rows > 2 * edge else []
            found.append(out.call("concatenate", first, *middle, last, dimension=d))
        return found

    def own_at(self, index: Atom, device: int, own: Atom, other: Atom) -> Atom:
        """`own` on a device that has no neighbour there."""
        here = self.out.call("eq", index, literal(device, INT32))
        return self.out.select(here, own, other)


# -- floats as integers ----------------------------------------------------------------------------

def _has_code(dtype: Any) -> bool:
    return issubdtype(dtype, np.floating) and np.dtype(dtype).itemsize <= 4


def _coded(out: Emitting, x: Atom, position: Atom) -> tuple[Atom, Callable[[Atom], Atom]]:
    """int32 in the order of floats, and the way back.

    Negative floats count down from -1; zeros are twice their position, plus one if negative; other
    floats follow, and all NaNs are the largest.
    """
    dtype, shape = x.aval.dtype, x.aval.shape
    room = 2 * _MOST_ZEROS - 2          # so that infinity comes below all NaNs

    def full(value: int) -> Atom:
        return out.full(value, shape, INT32)

    def bits(y: Atom, to: Any) -> Atom:
        return out.call("bitcast_convert_type", y, new_dtype=np.dtype(to))

    wide = out.convert(x, _F32)
    raw = bits(wide, np.int32)
    size = out.call("and", raw, full(_SIGN_OFF))
    negative = out.call("lt", raw, full(0))
    zero = out.call("eq", size, full(0))
    nan = out.call("ne", wide, wide)
    code = out.select(negative, out.call("neg", size), out.call("add", size, full(room)))
    sign = out.convert(negative, INT32)
    place = out.call("add", out.call("add", position, position), sign)
    code = out.select(zero, place, code)
    code = out.select(nan, full(_SIGN_OFF), code)

    def decode(y: Atom) -> Atom:
        below, above = out.call("lt", y, full(0)), out.call("gt", y, full(room))
        value = out.select(below, out.call("or", out.call("neg", y), full(-_SIGN_OFF - 1)),
                           out.select(above, out.call("sub", y, full(room)),
                                      out.call("mul", out.call("and", y, full(1)),
                                               full(-_SIGN_OFF - 1))))
        value = out.select(out.call("eq", y, full(_SIGN_OFF)), full(_NAN), value)
        return out.convert(bits(value, _F32), dtype)

    return code, decode
