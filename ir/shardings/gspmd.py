"""GSPMDSharding: a list of devices and a tile assignment, for tilings that no mesh names.

Every tiling that a mesh and a spec express can be written so too, and some that none does on the
devices in their order. `named()` gives the mesh and spec that mean the same: over the devices in
order where the assignment is an iota, else over the devices in order of tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..diagnostics.diagnostic import fail
from ..meshes.device import Device, check_memory_kind
from ..meshes.mesh import Mesh
from ..spec import PartitionSpec
from ..support.lazy import lazy_import
from .base_sharding import Index, Shape, Sharding, indivisible
from .restate import hlo_to_spec, spec_for_tiling
from .sharding import NamedSharding

if TYPE_CHECKING:
    from . import hlo_sharding as _hlo
    from .hlo_sharding import HloSharding, OpSharding
else:
    _hlo = lazy_import(".hlo_sharding", __package__)

__all__ = ["GSPMDSharding", "from_named", "is_unnamed", "named_on"]


class GSPMDSharding(Sharding):
    """Tiles on a list of devices, as an `HloSharding` (or `OpSharding`) numbers them.

    devices: the numbers of the tile assignment are places in this list. memory_kind: of the
    devices; None is the default one.

    Raises ValueError for a memory kind that the devices lack or a record that makes no sense.
    Equal shardings put the same tiles on the same devices, whichever way they are written.

    >>> import shardtrace as st
    >>> tiles = st.sharding.HloSharding.from_string("{devices=[2,2]0,3,1,2}")
    >>> s = GSPMDSharding(st.devices()[:4], tiles)
    >>> s
    GSPMDSharding({devices=[2,2]0,3,1,2}, memory_kind=device)
    >>> s.shard_shape((8, 4)), s.devices_indices_map((8, 4))[st.devices()[3]]
    ((4, 2), (slice(0, 4, None), slice(2, 4, None)))
    """

    devices: tuple[Device, ...]
    hlo_sharding: HloSharding

    def __init__(self, devices: Sequence[Device], op_sharding: OpSharding | HloSharding, *,
                 memory_kind: str | None = None) -> None:
        if isinstance(op_sharding, _hlo.OpSharding):
            op_sharding = _hlo.HloSharding.from_proto(op_sharding)
        if not isinstance(op_sharding, _hlo.HloSharding):
            raise TypeError("GSPMDSharding needs an HloSharding or an OpSharding, got "
                            f"{type(op_sharding).__name__}")
        devices = tuple(devices)
        if devices and memory_kind is None:
            memory_kind = devices[0].memory_kinds[0]
        elif devices:
            check_memory_kind(devices[0], memory_kind)
        put = object.__setattr__
        put(self, "devices", devices)
        put(self, "hlo_sharding", op_sharding)
        put(self, "memory_kind", memory_kind)

    @classmethod
    def get_replicated(cls, devices: Sequence[Device], *, memory_kind: str | None = None
                       ) -> GSPMDSharding:
        """The whole array on every one of `devices`."""
        return cls(devices, _hlo.HloSharding.replicate(), memory_kind=memory_kind)

    def __reduce__(self) -> tuple:
        return _unpickle, (self.devices, self.hlo_sharding, self.memory_kind)

    def __repr__(self) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"GSPMDSharding({self.hlo_sharding!r}{memory})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GSPMDSharding):
            return False
        return (self.devices == other.devices and self.memory_kind == other.memory_kind
                and _hlo.are_hlo_shardings_equal(self.hlo_sharding, other.hlo_sharding))

    @functools.cached_property
    def _hash(self) -> int:
        tiles = None if self.is_fully_replicated else self.hlo_sharding
        return hash((self.devices, tiles, self.memory_kind))

    def __hash__(self) -> int:
        return self._hash

    def with_memory_kind(self, kind: str) -> GSPMDSharding:
        """This sharding in another memory of the devices."""
        return GSPMDSharding(self.devices, self.hlo_sharding, memory_kind=kind)

    # -- devices

    @property
    def device_assignment(self) -> tuple[Device, ...]:
        """The list of devices."""
        return self.devices

    def to_hlo_sharding(self, ndim: int) -> HloSharding:
        """The tiles as they were given."""
        return self.hlo_sharding

    # -- the layout

    @functools.cached_property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        return _hlo.is_hlo_sharding_replicated(self.hlo_sharding)

    @property
    def has_unreduced(self) -> bool:
        """Whether devices hold parts of a sum."""
        tiles = self.hlo_sharding
        return tiles.is_unreduced() or _hlo.OpShardingType.UNREDUCED in tiles.groups

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Raise ValueError for an array of fewer dimensions than are tiled."""
        dims = self.hlo_sharding.dim_factors()
        if len(aval_shape) < len(dims):
            self._wrong_rank(aval_shape, "at least ", len(dims))

    def _wrong_rank(self, shape: Shape, least: str, rank: int) -> None:
        fail(ValueError, f"Sharding {self} is only valid for values of rank {least}{rank}, but was "
             f"applied to a value of rank {len(shape)}", code="wrong-rank",
             label=f"the value has shape {shape}",
             help="a tile assignment has one number of tiles for each dimension")

    def _factors(self, shape: Shape) -> tuple[int, ...]:
        """Tiles along each dimension of `shape`."""
        tiles = self.hlo_sharding
        if tiles.is_manual() or tiles.is_unknown() or _hlo.OpShardingType.MANUAL in tiles.groups:
            raise ValueError(f"{self} does not say what part of a value a device holds: it is "
                             f"{'unknown' if tiles.is_unknown() else 'up to each device (manual)'}")
        factors = (1,) * len(shape) if self.is_fully_replicated else tiles.dim_factors()
        if not factors and tiles.is_unreduced():
            return (1,) * len(shape)
        if len(factors) != len(shape):
            self._wrong_rank(shape, "at least " if len(shape) < len(factors) else "", len(factors))
        return factors

    def shard_shape(self, global_shape: Shape) -> Shape:
        """Shape of a tile; unreduced groups do not divide.

        Raises `IndivisibleError` where tiles would not be equal, ValueError for another rank and
        for manual shardings.
        """
        global_shape = tuple(global_shape)
        factors = self._factors(global_shape)
        for dim, (size, factor) in enumerate(zip(global_shape, factors, strict=True)):
            if size % factor:
                indivisible(self, dim, global_shape, factors)
        return tuple([s // f for s, f in zip(global_shape, factors, strict=True)])

    def _index_map(self, global_shape: Shape) -> Mapping[Device, Index]:
        """The part of the array that each device holds, from its place in the grid of tiles."""
        shape = global_shape
        block = self.shard_shape(shape)
        if self.has_unreduced:
            raise NotImplementedError(
                "device_indices_map doesn't work with unreduced. Each device holds a partial sum "
                "of the whole value; bring it to a sharding without unreduced groups first.")
        if self.is_fully_replicated:
            return dict.fromkeys(self.devices, (slice(None),) * len(shape))
        factors = self._factors(shape)
        grid = self.hlo_sharding.tiles.devices  # type: ignore[union-attr]
        self._check_count(grid)
        grid = grid.reshape(*factors, -1)
        held: dict[int, Index] = {}
        for place in np.ndindex(*factors):
            index = tuple([slice(None) if f == 1 else slice(i * n, (i + 1) * n)
                           for i, f, n in zip(place, factors, block, strict=True)])
            held.update(dict.fromkeys(grid[place].tolist(), index))
        return {d: held[i] for i, d in enumerate(self.devices)}

    def _check_count(self, grid: np.ndarray) -> None:
        if sorted(grid.reshape(-1).tolist()) != list(range(len(self.devices))):
            raise ValueError(f"{self} is on {len(self.devices)} devices, but its tile assignment "
                             f"does not number each of 0..{len(self.devices) - 1} once")

    def tiling(self, ndim: int) -> tuple:
        """The canonical form of `Sharding.tiling`."""
        return self.hlo_sharding.tiling(len(self.devices))

    # -- meshes

    def to_named(self, mesh: Mesh) -> NamedSharding:
        """This sharding as a spec on `mesh`.

        Raises ValueError if the mesh has other devices, another order, or no such spec.

        >>> import shardtrace as st
        >>> mesh = st.make_mesh((2, 2), ("x", "y"))
        >>> tiles = st.sharding.HloSharding.from_string("{devices=[2,2]<=[2,2]T(1,0)}")
        >>> GSPMDSharding(st.devices()[:4], tiles).to_named(mesh).spec
        P('y', 'x')
        """
        if mesh.device_tuple != self.devices:
            raise ValueError(f"{self} is on devices {[d.id for d in self.devices]}, and the mesh "
                             f"on {[d.id for d in mesh.device_tuple]}")
        spec = hlo_to_spec(self.hlo_sharding, mesh)
        return NamedSharding(mesh, spec, memory_kind=self.memory_kind)

    @functools.cached_property
    def _named(self) -> NamedSharding:
        """A mesh and a spec that mean the same: factors of the device list, if the tiles are an
        iota over it that a spec can write; else the grid of tiles itself as the mesh.
        """
        tiles = self.hlo_sharding
        if _hlo.is_hlo_sharding_replicated(tiles):
            mesh = _grid(self.devices, (len(self.devices),))
            return NamedSharding(mesh, PartitionSpec(), memory_kind=self.memory_kind)
        if not tiles.is_tiled() or tiles.tiles is None or self.has_unreduced \
                or _hlo.OpShardingType.MANUAL in tiles.groups:
            raise ValueError(f"{self} has no whole value that a mesh and a spec could describe")
        if tiles.tiles.digits_by_dim is not None:
            mesh = _grid(self.devices, tuple(tiles.get_axis_sizes()))
            spec = spec_for_tiling(mesh, self.tiling(len(tiles.dim_factors())))
            if spec is not None:
                return NamedSharding(mesh, spec, memory_kind=self.memory_kind)
        grid = tiles.tiles.devices
        self._check_count(grid)
        mesh = _grid([self.devices[i] for i in grid.reshape(-1)], grid.shape)
        entries = [name if factor > 1 else None for name, factor in
                   zip(mesh.axis_names, tiles.dim_factors(), strict=False)]
        return NamedSharding(mesh, PartitionSpec(*entries), memory_kind=self.memory_kind)

    def named(self) -> NamedSharding:
        """A mesh and a spec that put the same tiles on the same devices.

        The mesh has the devices in their order if some mesh of them has these tiles, else in the
        order of tiles; axes are named `_axis_0`, `_axis_1`... Raises ValueError for manual and
        unreduced shardings.
        """
        return self._named


def named_on(sharding: GSPMDSharding, mesh: Mesh) -> NamedSharding:
    """The sharding, or the nearest to it, with the names of `mesh` if that has the same devices."""
    if mesh.device_set == sharding.device_set:
        own = _renumbered(sharding.hlo_sharding, sharding.devices, mesh.device_tuple)
        spec = spec_for_tiling(mesh, own.tiling(mesh.size), loose=True)
        if spec is not None:
            return NamedSharding(mesh, spec, memory_kind=sharding.memory_kind)
    return sharding.named()


def is_unnamed(mesh: Mesh) -> bool:
    """Whether the mesh was made by `GSPMDSharding.named`."""
    names = mesh.axis_names
    return names[:1] == ("_axis_0",) and names == tuple([f"_axis_{i}" for i in range(len(names))])


def single_device_mesh(device: Device) -> Mesh:
    """What stands among the meshes that a program names where it names a device."""
    return Mesh(np.array([device], dtype=object), ("_device",))


def is_single_device(mesh: Mesh) -> bool:
    """Whether the mesh was made by `single_device_mesh`."""
    return mesh.axis_names == ("_device",)


def _grid(devices: Sequence[Device], sizes: tuple[int, ...]) -> Mesh:
    grid = np.empty(len(devices), dtype=object)
    grid[:] = devices
    return Mesh(grid.reshape(sizes), tuple([f"_axis_{i}" for i in range(len(sizes))]))


def from_named(sharding: NamedSharding, ndim: int, devices: Sequence[Device]) -> GSPMDSharding:
    """What `sharding` does to values of `ndim` dimensions, on the same devices in another order."""
    tiles = _renumbered(sharding.to_hlo_sharding(ndim), sharding.device_assignment, tuple(devices))
    return GSPMDSharding(devices, tiles, memory_kind=sharding.memory_kind)


def _renumbered(tiles: HloSharding, old: tuple[Device, ...], new: tuple[Device, ...]
                ) -> HloSharding:
    """Tiles of devices numbered by their places in `old`, with their numbers in `new` instead."""
    if old == new or not tiles.is_tiled() or tiles.tiles is None:
        return tiles
    place = {d: i for i, d in enumerate(new)}
    number = np.array([place[d] for d in old])
    return _hlo.HloSharding.tile_devices(number[tiles.tiles.devices], tiles.groups)


def _unpickle(devices: tuple[Device, ...], tiles: HloSharding, memory_kind: str | None
              ) -> GSPMDSharding:
    return GSPMDSharding(devices, tiles, memory_kind=memory_kind)
