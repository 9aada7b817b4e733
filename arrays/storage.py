"""How the data of an array is held: one numpy array for all devices.

An axis that shards a dimension is in place: the array has the global dimension, and a device's
block is a slice of it. An axis over which devices hold partial sums, or copies that differ, is a
leading dimension. So the usual sharded or replicated array is simply its global numpy array, stored
once whatever the number of devices.

Where other processes hold a part of an array, this process has `LocalBlocks` instead. Engines that
work on blocks, as the per-device executor does, get them from here and give them back.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Set
from typing import Any

import numpy as np

from ..ir.kernels.key_data import storage_dtype
from ..ir.meshes.device import Device
from ..ir.meshes.mesh import BaseMesh, Mesh
from ..ir.shardings.gspmd import GSPMDSharding
from ..ir.shardings.sharding import (
    NamedSharding,
    Sharding,
    common_devices_indices_map,
    tile_index,
)
from ..ir.spec import PartitionSpec
from ..ir.support.caches import cached
from ..ir.support.named_tuple import NamedTuple
from ..ir.types import ArrayType, Entries, Shape
from .axes import MeshAtoms, linear_index

Place = tuple[tuple[int, int], ...]
"""Where a block lies: along each dimension the first row and the one after the last."""
Buffers = list[Any]
"""An array for each device, in mesh order; None if it is inactive."""
_SMALL = 1 << 20


class Stored(NamedTuple):
    """Data of all devices: dimensions `lead` (mesh axes, in mesh order), then the global shape.

    lead never has an axis that shards a dimension, nor one of size 1; an axis of which only a part
    is stacked appears as that sub-axis. Random keys are uint64 numbers (ir/kernels/key_data.py).
    """
    data: np.ndarray
    lead: tuple[str, ...] = ()


new_stored: Callable[[tuple], Stored] = functools.partial(tuple.__new__, Stored)
"""`Stored` of its two fields, in a third of the time."""


class LocalBlocks(NamedTuple):
    """The blocks of the devices that this process owns, where it does not own all devices."""
    blocks: Mapping[Device, np.ndarray]


Storage = Stored | LocalBlocks


def frozen(data: Any) -> np.ndarray:
    """A read-only view, so that an array cannot be changed through `np.asarray`."""
    view = data.view() if type(data) is np.ndarray else np.asarray(data)
    view.setflags(write=False)
    return view


def freeze_result(x: Any) -> np.ndarray:
    """A result as the user gets it: read-only, copied if a small view of a large buffer."""
    base = getattr(x, "base", None)
    if type(base) is np.ndarray and base.nbytes > 4 * x.nbytes + _SMALL:
        x = x.copy()
    return frozen(x)


def base_of(x: Any) -> Any:
    """The array whose memory `x` is a view of, or `x` itself."""
    while type(getattr(x, "base", None)) is np.ndarray:
        x = x.base
    return x


def memory_of(x: Any) -> int:
    """An identifier of the memory of an array, shared by its views."""
    return id(base_of(x))


def without_alias(x: np.ndarray, others: Set[int]) -> np.ndarray:
    """x, copied if it shares memory with one of `others`, which may be written to."""
    return frozen(x.copy()) if memory_of(x) in others else x


@cached(1024)
def lead_index(mesh: Mesh, lead: tuple[str, ...]) -> dict[Device, tuple[int, ...]]:
    """The index of a device's part in the leading dimensions `lead`."""
    entries = [(a,) for a in lead]
    return {d: tile_index(mesh.shape, entries, at)
            for d, at in zip(mesh.device_tuple, np.ndindex(*mesh.axis_sizes), strict=True)}


def block_index(sharding: Sharding, shape: Shape) -> Mapping[Device, tuple[slice, ...]]:
    """Device to the slices that it holds, also for partial sums. Do not modify."""
    if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:
        sharding = sharding.update(spec=sharding.spec.update(unreduced=frozenset()))
    return common_devices_indices_map(sharding, shape)


def holders(index: Mapping[Device, tuple[slice, ...]], shape: Shape) -> dict[Place, list[Device]]:
    """For each block the devices that hold it, in order. index: device to slices."""
    found: dict[Place, list[Device]] = {}
    for device, where in index.items():
        place = tuple([s.indices(n)[:2] for s, n in zip(where, shape, strict=True)])
        found.setdefault(place, []).append(device)
    return found


def on_mesh(sharding: Sharding) -> Sharding:
    """A sharding as a NamedSharding, whose mesh axes name leading dimensions."""
    return sharding.named() if isinstance(sharding, GSPMDSharding) else sharding


NOT_ADDRESSABLE = (
    "Fetching value for `jax.Array` that spans non-addressable (non process local) devices is not "
    "possible. You can use `jax.experimental.multihost_utils.process_allgather` to print the "
    "global array or use `.addressable_shards` method of jax.Array to inspect the addressable "
    "(process local) shards.")


def block_of(stored: Storage, sharding: Sharding, shape: Shape, device: Device) -> np.ndarray:
    """What `device` holds: a view of the data. Raises RuntimeError where it is not here."""
    if isinstance(stored, LocalBlocks):
        if device not in stored.blocks:
            raise RuntimeError(NOT_ADDRESSABLE)
        return stored.blocks[device]
    data = stored.data
    if stored.lead:
        mesh = on_mesh(sharding).mesh  # type: ignore[attr-defined]
        data = data[lead_index(mesh, stored.lead)[device]]
    return data[(*block_index(sharding, shape)[device], ...)]     # an array, also for a scalar


def assemble(blocks: Mapping[Device, np.ndarray], sharding: Sharding, shape: Shape,
             dtype: Any) -> Stored:
    """The stored form of an array, from the block of each device.

    Devices that should hold the same block may differ; the axes between them then become leading.
    """
    index = block_index(sharding, shape)
    held = storage_dtype(dtype)
    distinct = holders(index, shape).values()
    if not (isinstance(sharding, NamedSharding) and sharding.spec.unreduced) and all(
            [identical(blocks[first], blocks[d]) for first, *others in distinct for d in others]):
        if len(distinct) == 1:
            return Stored(frozen(next(iter(blocks.values()))))
        data = np.empty(shape, held)
        for first, *_ in distinct:
            data[index[first]] = blocks[first]
        return Stored(frozen(data))
    sharding = on_mesh(sharding)
    assert isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh)
    return DeviceBlocks(sharding.mesh).assemble(
        [blocks[d] for d in sharding.mesh.device_tuple], sharding.spec.padded(len(shape)), shape)


def identical(a: np.ndarray, b: np.ndarray) -> bool:
    """Are two arrays equal, bit for bit?"""
    if a is b:
        return True
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.size or a.strides == b.strides and (
            a.__array_interface__["data"][0] == b.__array_interface__["data"][0]):
        return True
    at = (0,) * a.ndim              # most differences show there
    return a[at].tobytes() == b[at].tobytes() and a.tobytes() == b.tobytes()


# -- blocks by the coordinates of devices, as engines have them ------------------------------------

class DeviceBlocks:
    """The devices of a mesh, by their coordinates, and the blocks of values on them."""

    def __init__(self, mesh: BaseMesh) -> None:
        self.mesh = mesh
        self.coordinates = [dict(zip(mesh.axis_names, map(int, c), strict=True))
                            for c in np.ndindex(*mesh.axis_sizes)]

    def scatter(self, x: Stored, t: ArrayType, local: ArrayType) -> Buffers:
        """For each device a copy of its block of `x`, padded with zeros."""
        out = []
        for at in self.coordinates:
            data = x.data[tuple(self.place(a, at) for a in x.lead)]
            out.append(filled(data[self.slices(t.entries, local.shape, at)], local.shape))
        return out

    def slices(self, entries: Entries, block: Shape, at: dict[str, int]) -> tuple[slice, ...]:
        """The slices of the whole value that the device at these coordinates holds.

        entries: the axes of each dimension. block: the shape of blocks.
        """
        tiles = tile_index(self.mesh.shape, entries, at)
        return tuple([slice(i * n, (i + 1) * n) for i, n in zip(tiles, block, strict=True)])

    def place(self, axis: str, at: dict[str, int]) -> int:
        return linear_index(self.mesh, (axis,), at)

    def assemble(self, blocks: Buffers, spec: PartitionSpec, shape: Shape) -> Stored:
        """The whole value. Axes along which blocks differ without sharding a dimension become
        leading. spec: with an entry for each dimension.
        """
        atoms = MeshAtoms(self.mesh, (*spec.axes(), *sorted(spec.unreduced)))
        inside = set(atoms.of_all(spec.axes()))
        pending = set(atoms.of_all(sorted(spec.unreduced)))
        lead = tuple(a for a in atoms.order if a not in inside and (
            a in pending or not all([identical(blocks[first], blocks[d]) for first, *others
                                     in atoms.groups((a,)).tolist() for d in others])))
        counts = [atoms.count(atoms.of_all(axes)) for axes in spec.entries]
        block = blocks[0].shape
        padded = tuple(n * c for n, c in zip(block, counts, strict=True))
        data = np.empty(atoms.sizes(lead) + padded, blocks[0].dtype)
        for at, held in zip(self.coordinates, blocks, strict=True):
            if any(self.place(a, at) for a in atoms.order if a not in inside and a not in lead):
                continue        # a copy: the first device along these axes gives the value
            where = self.slices(spec.entries, block, at)
            data[tuple(self.place(a, at) for a in lead) + where] = held
        end = (slice(None),) * len(lead) + tuple(slice(0, n) for n in shape)
        return Stored(frozen(data[end]), lead)


def filled(piece: np.ndarray, shape: Shape) -> np.ndarray:
    """A copy of `piece`, extended to this shape with zeros."""
    if piece.shape == shape:
        return np.array(piece)
    block = np.zeros(shape, piece.dtype)
    block[tuple([slice(0, n) for n in piece.shape])] = piece
    return block
