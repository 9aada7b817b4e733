"""Shardings as XLA writes them: a tile assignment, without mesh and without names.

`HloSharding` is the value; the plain record of its fields is `OpSharding`
(ir/shardings/op_sharding.py). The text form is `{devices=[4,1,2]<=[8] last_tile_dim_replicate}`:
four tiles along the first dimension, one along the second, each on two devices. Which devices the
numbers stand for is given by `GSPMDSharding`; names come in with `hlo_to_spec`
(ir/shardings/restate.py).

Names, texts and normal forms are those of XLA's `HloSharding` as JAX 0.10.2 shows it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..support.interning import Immutable
from .op_sharding import OpSharding, OpShardingType, read_op_sharding
from .tile_assignment import TileAssignment
from .tiling import merge_digits

__all__ = ["HloSharding", "OpSharding", "OpShardingType", "are_hlo_shardings_equal",
           "is_hlo_sharding_replicated"]


_REPLICATED, _MAXIMAL, _TUPLE, _TILED, _MANUAL, _UNKNOWN, _UNREDUCED = OpShardingType
_WHOLE = (_REPLICATED, _MANUAL, _UNKNOWN, _UNREDUCED)
_GROUPS = (_MANUAL, _UNREDUCED, _REPLICATED)     # in the order in which they are kept


class HloSharding(Immutable):
    """How values are cut into tiles and which device, by number, holds which.

    Made by `replicate`, `manual`, `unreduced`, `unknown`, `maximal`, `iota_tile`, `tile_devices`,
    `tuple_sharding`, `from_proto` or `from_string`, or by a sharding's `to_hlo_sharding`. Two are
    equal if they put the same tiles on the same devices.

    >>> s = HloSharding.iota_tile((2, 1, 4), subgroup_types=[OpSharding.Type.REPLICATED])
    >>> s, s.num_devices(), s.replicate_on_last_tile_dim()
    ({devices=[2,1,4]<=[8] last_tile_dim_replicate}, 8, True)
    >>> HloSharding.from_string(str(s)) == s
    True
    """

    __slots__ = ("__dict__", "elements", "groups", "kind", "tiles")

    kind: OpShardingType
    tiles: TileAssignment | None
    """The tiles of tiled shardings; of a maximal one its single device."""
    groups: tuple[OpShardingType, ...]
    """Types of the last dimensions of `tiles`."""
    elements: tuple[HloSharding, ...]

    def __init__(self, kind: OpShardingType, tiles: TileAssignment | None = None,
                 groups: tuple[OpShardingType, ...] = (),
                 elements: tuple[HloSharding, ...] = ()) -> None:
        put = object.__setattr__
        put(self, "kind", kind)
        put(self, "tiles", tiles)
        put(self, "groups", groups)
        put(self, "elements", elements)

    # -- making

    @classmethod
    def replicate(cls) -> HloSharding:
        """Every device holds everything."""
        return cls(_REPLICATED)

    @classmethod
    def manual(cls) -> HloSharding:
        """Every device holds a value of its own."""
        return cls(_MANUAL)

    @classmethod
    def unreduced(cls) -> HloSharding:
        """Every device holds a part of a sum."""
        return cls(_UNREDUCED)

    @classmethod
    def unknown(cls) -> HloSharding:
        """No tiling is given."""
        return cls(_UNKNOWN)

    @classmethod
    def maximal(cls, device: int) -> HloSharding:
        """One device holds everything, the others nothing."""
        return cls(_MAXIMAL, TileAssignment.listed((1,), (device,)))

    @classmethod
    def iota_tile(cls, dims: Iterable[int], reshape_dims: Iterable[int] = (),
                  transpose_perm: Iterable[int] = (),
                  subgroup_types: Iterable[OpShardingType] = ()) -> HloSharding:
        """Tiles whose devices are numbered by an iota; see `TileAssignment.iota`.

        subgroup_types: what the last dimensions are, if they cut nothing. Raises ValueError.
        """
        return _tiled(TileAssignment.iota(dims, reshape_dims, transpose_perm),
                      tuple(subgroup_types))

    @classmethod
    def tile_devices(cls, devices: Any, subgroup_types: Iterable[OpShardingType] = ()
                     ) -> HloSharding:
        """Tiles whose devices are given one by one, as an array of device numbers."""
        grid = np.asarray(devices)
        return _tiled(TileAssignment.listed(grid.shape, grid.flat), tuple(subgroup_types))

    subgroup_with_device_ordering = tile_devices

    @classmethod
    def tuple_sharding(cls, elements: Iterable[HloSharding]) -> HloSharding:
        """The shardings of several values."""
        return cls(_TUPLE, elements=tuple(elements))

    @classmethod
    def from_proto(cls, op: OpSharding) -> HloSharding:
        """What the record says. Raises ValueError if its parts do not fit together."""
        if op.type in _WHOLE:
            return cls(OpShardingType(op.type))
        if op.type == _TUPLE:
            return cls.tuple_sharding([cls.from_proto(part) for part in op.tuple_shardings])
        if op.type == _MAXIMAL:
            if len(op.tile_assignment_devices) != 1:
                raise ValueError("a maximal sharding has one device, got "
                                 f"{list(op.tile_assignment_devices)}")
            return cls.maximal(op.tile_assignment_devices[0])
        dims = tuple(op.tile_assignment_dimensions)
        if op.iota_reshape_dims or not op.tile_assignment_devices:
            tiles = TileAssignment.iota(dims, op.iota_reshape_dims, op.iota_transpose_perm)
        else:
            tiles = TileAssignment.listed(dims, op.tile_assignment_devices)
        groups = tuple(OpShardingType(g) for g in op.last_tile_dims)
        return _tiled(tiles, groups or (_REPLICATED,) * bool(op.replicate_on_last_tile_dim))

    @classmethod
    def from_tiling(cls, tiling: tuple, ndim: int) -> HloSharding:
        """From the canonical form that `Sharding.tiling` has (not one that is irregular)."""
        if not tiling:
            return cls.replicate()
        dims = [1] * ndim
        for radix, kind, _ in tiling:
            if kind[0] == "tile":
                dims[kind[1]] *= radix
        groups = []
        order = sorted([i for i, (_, kind, _) in enumerate(tiling) if kind[0] == "tile"],
                       key=lambda i: (tiling[i][1][1], tiling[i][2]))
        for group in _GROUPS:
            members = [i for i, (_, kind, _) in enumerate(tiling) if kind[0] == group.name.lower()]
            if members:
                order += members
                groups.append(group)
                dims.append(math.prod([tiling[i][0] for i in members]))
        return cls.iota_tile(dims, [radix for radix, _, _ in tiling], order, groups)

    @classmethod
    def from_string(cls, text: str) -> HloSharding:
        """Read what `str` prints. Raises ValueError that shows where the text cannot be read."""
        return cls.from_proto(read_op_sharding(text))

    def to_proto(self) -> OpSharding:
        """The record that `from_proto` reads."""
        op = OpSharding(type=self.kind)
        op.tuple_shardings = [part.to_proto() for part in self.elements]
        if self.tiles is not None:
            op.tile_assignment_dimensions = list(self.tiles.dims)
            if self.tiles.is_iota:
                op.iota_reshape_dims = list(self.tiles.reshape)
                op.iota_transpose_perm = list(self.tiles.perm)
            else:
                op.tile_assignment_devices = self.tile_assignment_devices()
            op.replicate_on_last_tile_dim = self.replicate_on_last_tile_dim()
            op.last_tile_dims = self.subgroup_types()
        return op

    # -- asking

    def is_replicated(self) -> bool:
        """Whether every device holds everything."""
        return self.kind is _REPLICATED

    def is_maximal(self) -> bool:
        """Whether each device that holds something holds everything."""
        return self.kind in (_MAXIMAL, _REPLICATED)

    def is_manual(self) -> bool:
        """Whether every device holds a value of its own, and nothing is tiled."""
        return self.kind is _MANUAL

    def is_unreduced(self) -> bool:
        """Whether all devices hold parts of one sum, and nothing is tiled."""
        return self.kind is _UNREDUCED

    def is_unknown(self) -> bool:
        """Whether no tiling is given."""
        return self.kind is _UNKNOWN

    def is_tiled(self) -> bool:
        """Whether there is a tile assignment."""
        return self.kind is _TILED

    def is_tile_assignment_iota(self) -> bool:
        """Whether the tile assignment was written as an iota."""
        return self.kind is _TILED and self._assignment().is_iota

    def _assignment(self) -> TileAssignment:
        if self.tiles is None:
            raise ValueError(f"the sharding {self} has no tiles")
        return self.tiles

    def num_devices(self) -> int:
        """Number of devices in the tile assignment; 0 where there is none."""
        return 0 if self.tiles is None else self.tiles.size

    def num_dimensions(self) -> int:
        """Number of dimensions of the tile assignment, groups included."""
        return len(self.tile_assignment_dimensions())

    def tile_assignment_dimensions(self) -> list[int]:
        """Tiles a dimension, then the sizes of the groups; [0] where nothing is tiled."""
        return [0] if self.tiles is None else list(self.tiles.dims)

    def tile_assignment_devices(self) -> list[int]:
        """Device numbers in order of tiles."""
        return [] if self.tiles is None else self.tiles.devices.reshape(-1).tolist()

    def replicate_on_last_tile_dim(self) -> bool:
        """Whether the last dimension of the tile assignment is of replicas, and the only group."""
        return self.groups == (_REPLICATED,)

    def subgroup_types(self) -> list[OpShardingType]:
        """Types of the last dimensions, unless they are one of replicas."""
        return [] if self.replicate_on_last_tile_dim() else list(self.groups)

    def tuple_elements(self) -> list[HloSharding]:
        """The shardings of a tuple; [] for others."""
        return list(self.elements)

    def get_axis_sizes(self) -> list[int]:
        """Sizes of the axes of the coarsest mesh, in device order, that has these tiles.

        Raises ValueError if no mesh of the devices in their order has them.
        """
        by_dim = self._assignment().digits_by_dim
        if by_dim is None:
            raise ValueError(f"no mesh whose devices are in order has the tiles of {self}")
        digits = sorted([d for dim in by_dim for d in dim], key=lambda d: -d[1])
        return [size for size, _ in digits]

    def dim_factors(self) -> tuple[int, ...]:
        """Tiles a dimension; () where nothing is cut. Raises ValueError for tuples."""
        if self.kind is _TUPLE:
            raise ValueError(f"{self} is a sharding of {len(self.elements)} values")
        if self.kind is not _TILED:
            return ()
        tiles = self._assignment()
        return tiles.dims[:len(tiles.dims) - len(self.groups)]

    def tiling(self, num_devices: int) -> tuple:
        """The canonical form that `Sharding.tiling` has, for a list of so many devices."""
        if is_hlo_sharding_replicated(self):
            return ()
        if self.kind is not _TILED:
            return ((num_devices, (self.kind.name.lower(),), 0),)
        dims = self.dim_factors()
        kinds: list[tuple] = [("tile", dim) for dim in range(len(dims))]
        kinds += [(group.name.lower(),) for group in self.groups]
        by_dim = self._sorted.digits_by_dim
        if by_dim is None:
            return "irregular", dims, self.groups, tuple(self._sorted.devices.flat)
        digits = [(stride, size, kind, place) for kind, of_kind in zip(kinds, by_dim, strict=True)
                  for place, (size, stride) in enumerate(of_kind)]
        digits.sort(key=lambda d: -d[0])
        return merge_digits([d[1:] for d in digits])

    # -- comparing and printing

    @functools.cached_property
    def _sorted(self) -> TileAssignment:
        """The tile assignment with replicas, which have no order, by number."""
        tiles = self._assignment()
        if _REPLICATED not in self.groups:
            return tiles
        if tiles.is_iota and tiles.digits_by_dim is not None:
            *outer, last = tiles.digits_by_dim
            last = sorted(last, key=lambda d: -d[1])
            return TileAssignment.from_digits(tiles.dims, [*(d for o in outer for d in o), *last])
        return TileAssignment.listed(tiles.dims, np.sort(tiles.devices, axis=-1).flat)

    @functools.cached_property
    def _key(self) -> tuple:
        tiles = self._sorted if self.kind is _TILED else self.tiles
        return self.kind, tiles, self.groups, self.elements

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HloSharding) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple:
        return HloSharding, (self.kind, self.tiles, self.groups, self.elements)

    def __repr__(self) -> str:
        if self.kind is _TUPLE:
            return "{" + ", ".join(map(str, self.elements)) + "}"
        if self.kind is _MAXIMAL:
            return f"{{maximal device={self.tile_assignment_devices()[0]}}}"
        if self.kind is not _TILED:
            return f"{{{self.kind.name.lower()}}}"
        last = ""
        if self.replicate_on_last_tile_dim():
            last = " last_tile_dim_replicate"
        elif self.groups:
            last = f" last_tile_dims={{{', '.join(g.name.lower() for g in self.groups)}}}"
        return f"{{devices={self.tiles}{last}}}"


def _tiled(tiles: TileAssignment, groups: tuple[OpShardingType, ...]) -> HloSharding:
    """The normal form: groups of one type are one dimension, in a fixed order, none of size 1."""
    if len(groups) > len(tiles.dims) or not set(groups) <= set(_GROUPS):
        shown = ", ".join(getattr(g, "name", str(g)).lower() for g in groups)
        raise ValueError(f"groups {{{shown}}} do not fit a tile assignment of dimensions "
                         f"{list(tiles.dims)}; they may be manual, unreduced and replicated")
    cut = len(tiles.dims) - len(groups)
    sizes: dict[OpShardingType, int] = {}
    for group, size in zip(groups, tiles.dims[cut:], strict=True):
        sizes[group] = sizes.get(group, 1) * size
    order = sorted(range(len(groups)), key=lambda i: _GROUPS.index(groups[i]))
    if order != list(range(len(order))):
        tiles = tiles.transposed([*range(cut), *(cut + i for i in order)])
    nontrivial = tuple([g for g in _GROUPS if sizes.get(g, 1) > 1])
    dims = tiles.dims[:cut]
    if len(nontrivial) == 1 and math.prod(dims) == 1:
        return HloSharding(nontrivial[0])
    if groups and not nontrivial and math.prod(dims) == 1:
        return HloSharding(_REPLICATED)
    tiles = tiles.reshaped((*dims, *(sizes[g] for g in nontrivial)))
    if nontrivial and nontrivial[-1] is _REPLICATED and not tiles.is_iota:
        tiles = TileAssignment.listed(tiles.dims, np.sort(tiles.devices, axis=-1).flat)
    return HloSharding(_TILED, tiles, nontrivial)


def is_hlo_sharding_replicated(sharding: HloSharding) -> bool:
    """Whether every device of the assignment holds everything."""
    return sharding.num_devices() == 1 or sharding.is_replicated()


def are_hlo_shardings_equal(a: HloSharding, b: HloSharding) -> bool:
    """Whether both put the same tiles on the same devices."""
    if is_hlo_sharding_replicated(a) and is_hlo_sharding_replicated(b):
        return True
    return a == b
