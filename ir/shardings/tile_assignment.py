"""Which device holds which tile: a grid of device numbers, listed or computed.

The grid has one dimension for each dimension of the array (its size: the number of tiles) and
possibly more for devices that share a tile. It is given as a list, or as an *iota*: number the
devices 0..n-1, reshape, transpose, read in order. An iota costs the same whatever the number of
devices, and nearly all assignments are one; `digits` finds it in a list too.

Source: the second version of tile assignments in XLA (`hlo_sharding.h`, `tile_assignment.h`).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from ..support.interning import Immutable

__all__ = ["Digit", "TileAssignment"]

Digit = tuple[int, int]
"""(size, stride): a digit of a device's number in mixed radix, and what one step of it counts."""


class TileAssignment(Immutable):
    """A grid of device numbers of shape `dims`, last dimension fastest.

    Made by `iota` or `listed`. Two assignments are equal if their grids are, whichever way they
    were written; printing keeps the way.

    >>> TileAssignment.iota((2, 4), (4, 2), (1, 0)).devices.tolist()
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    """

    __slots__ = ("__dict__", "_listed", "dims", "perm", "reshape")

    dims: tuple[int, ...]
    reshape: tuple[int, ...]
    """Sizes that 0..n-1 is reshaped to; () for a list."""
    perm: tuple[int, ...]

    def __init__(self, dims: tuple[int, ...], reshape: tuple[int, ...], perm: tuple[int, ...],
                 listed: tuple[int, ...] | None) -> None:
        put = object.__setattr__
        put(self, "dims", dims)
        put(self, "reshape", reshape)
        put(self, "perm", perm)
        put(self, "_listed", listed)

    @classmethod
    def iota(cls, dims: Iterable[int], reshape: Iterable[int] = (), perm: Iterable[int] = ()
             ) -> TileAssignment:
        """0..n-1 reshaped to `reshape`, its dimensions in the order `perm`, then to `dims`.

        Raises ValueError if the sizes do not fit together.
        """
        dims, reshape, perm = tuple(dims), tuple(reshape), tuple(perm)
        count = math.prod(dims)
        reshape = reshape or (count,)
        perm = perm or tuple(range(len(reshape)))
        if math.prod(reshape) != count:
            raise ValueError(f"a tile assignment of dimensions {list(dims)} has {count} devices, "
                             f"but the iota {list(reshape)} has {math.prod(reshape)}")
        if sorted(perm) != list(range(len(reshape))):
            raise ValueError(f"T{perm} is no order of the {len(reshape)} iota dimensions")
        return cls(dims, *_simplest(reshape, perm), None)

    @classmethod
    def listed(cls, dims: Iterable[int], devices: Iterable[int]) -> TileAssignment:
        """The devices one by one. Raises ValueError if their number is not that of the tiles."""
        dims, devices = tuple(dims), tuple([int(d) for d in devices])
        if math.prod(dims) != len(devices):
            raise ValueError(f"a tile assignment of dimensions {list(dims)} needs "
                             f"{math.prod(dims)} devices, got {len(devices)}")
        return cls(dims, (), (), devices)

    @property
    def is_iota(self) -> bool:
        return self._listed is None

    @property
    def size(self) -> int:
        """Number of places in the grid."""
        return math.prod(self.dims)

    @functools.cached_property
    def devices(self) -> np.ndarray:
        """The grid as an array of device numbers; read-only."""
        if self._listed is not None:
            grid = np.array(self._listed, dtype=np.int64)
        else:
            grid = np.arange(self.size).reshape(self.reshape).transpose(self.perm)
        grid = grid.reshape(self.dims)
        grid.flags.writeable = False
        return grid

    # -- derived assignments

    def reshaped(self, dims: Sequence[int]) -> TileAssignment:
        """These devices, in the same order, in a grid of other dimensions."""
        return TileAssignment(tuple(dims), self.reshape, self.perm, self._listed)

    def transposed(self, order: Sequence[int]) -> TileAssignment:
        """The grid with its dimensions in another order."""
        dims = tuple([self.dims[i] for i in order])
        by_dim = self.digits_by_dim if self.is_iota else None
        if by_dim is None:
            return TileAssignment.listed(dims, self.devices.transpose(order).flat)
        return TileAssignment.from_digits(dims, [d for i in order for d in by_dim[i]])

    @classmethod
    def from_digits(cls, dims: Iterable[int], digits: Sequence[Digit]) -> TileAssignment:
        """The iota whose grid, read in order, counts with these digits, most significant first."""
        order = sorted(range(len(digits)), key=lambda i: -digits[i][1])
        place = {i: n for n, i in enumerate(order)}
        return cls.iota(dims, [digits[i][0] for i in order], [place[i] for i in range(len(digits))])

    # -- digits

    @functools.cached_property
    def digits(self) -> tuple[Digit, ...] | None:
        """The digits that reading the grid in order counts with, most significant first.

        None if the order is not that of an iota.
        """
        if self._listed is None:
            strides = [math.prod(self.reshape[i + 1:]) for i in range(len(self.reshape))]
            return tuple([(self.reshape[i], strides[i]) for i in self.perm])
        flat = np.array(self._listed, dtype=np.int64)
        if np.array_equal(np.sort(flat), np.arange(flat.size)) is False or flat[0] != 0:
            return None
        found: list[Digit] = []
        rest = flat
        while rest.size > 1:
            stride = int(rest[1])
            regular = rest == np.arange(rest.size) * stride
            size = int(rest.size if regular.all() else regular.argmin())
            if rest.size % size:
                return None
            found.insert(0, (size, stride))
            rest = rest[::size]
        made = TileAssignment.from_digits(self.dims, found) if _is_radix(found) else None
        if made is None or not np.array_equal(made.devices.reshape(-1), flat):
            return None
        return made.digits

    @functools.cached_property
    def digits_by_dim(self) -> tuple[tuple[Digit, ...], ...] | None:
        """For each dimension of the grid the digits that count along it; None if there are none.

        A digit that reaches over the border of two dimensions is cut there; where that is not
        possible, no mesh of devices has these tiles.
        """
        digits = self.digits
        if digits is None:
            return None
        left = [list(d) for d in digits]
        out: list[tuple[Digit, ...]] = []
        for size in self.dims:
            of_dim: list[Digit] = []
            while size > 1:
                if not left:
                    return None
                radix, stride = left[0]
                if size % radix == 0:
                    of_dim.append((radix, stride))
                    size //= radix
                    left.pop(0)
                elif radix % size == 0:
                    left[0] = [radix // size, stride]
                    of_dim.append((size, stride * (radix // size)))
                    size = 1
                else:
                    return None
            out.append(tuple(of_dim))
        return tuple(out)

    # -- comparing and printing

    @functools.cached_property
    def _key(self) -> tuple:
        return self.dims, self.digits or tuple(self.devices.reshape(-1).tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TileAssignment) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple:
        return TileAssignment, (self.dims, self.reshape, self.perm, self._listed)

    def __str__(self) -> str:
        dims = f"[{','.join(map(str, self.dims))}]"
        if self._listed is not None:
            return dims + ",".join(map(str, self._listed))
        swap = "" if len(self.perm) == 1 else f"T({','.join(map(str, self.perm))})"
        return f"{dims}<=[{','.join(map(str, self.reshape))}]{swap}"

    __repr__ = __str__


def _is_radix(digits: Sequence[Digit]) -> bool:
    """Whether the digits, sorted by stride, make up all numbers from 0 to their product."""
    ordered = sorted(digits, key=lambda d: d[1])
    before = [1, *itertools.accumulate([size for size, _ in ordered], lambda a, b: a * b)]
    return all(stride == n for (_, stride), n in zip(ordered, before, strict=False))


def _simplest(reshape: tuple[int, ...], perm: tuple[int, ...]
              ) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Reshape and transpose without sizes of 1, neighbours that stay neighbours made one."""
    groups: list[list[int]] = []
    place = {d: i for i, d in enumerate(d for d in range(len(reshape)) if reshape[d] != 1)}
    for d in perm:
        if reshape[d] == 1:
            continue
        if groups and place[groups[-1][-1]] + 1 == place[d]:
            groups[-1].append(d)
        else:
            groups.append([d])
    if not groups:
        return (1,), (0,)
    order = sorted(range(len(groups)), key=lambda i: groups[i][0])
    rank = {g: n for n, g in enumerate(order)}
    sizes = tuple([math.prod([reshape[d] for d in groups[g]]) for g in order])
    return sizes, tuple([rank[g] for g in range(len(groups))])
