"""Blocks of arrays: arrays and whole values made from them, and the block of one device."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.meshes.device import Device, process_index
from ..ir.shardings.gspmd import GSPMDSharding
from ..ir.shardings.sharding import NamedSharding, Sharding, common_devices_indices_map
from ..ir.support.caches import cached
from ..ir.types import ArrayType
from .axes import MeshAtoms
from .storage import (
    NOT_ADDRESSABLE,
    LocalBlocks,
    Storage,
    Stored,
    assemble,
    block_index,
    block_of,
    frozen,
    holders,
)

Block = tuple[np.ndarray, Any]
"""Data as it is stored, and the dtype that users see (random keys are stored as words)."""


def single_devices(arrays: Sequence[Any]) -> list[Device]:
    """The device of each array. Raises ValueError for an array of several shards."""
    for a in arrays:
        if a.sharding.num_devices != 1:
            raise ValueError(
                "When making an array from single-device arrays the input arrays must have one "
                f"shard each. An argument array had {a.sharding.num_devices} shard(s).")
    return [a.sharding.device_assignment[0] for a in arrays]


def check_owners(owners: Sequence[Device], sharding: Sharding) -> None:
    """Raise ValueError unless these are the devices of `sharding` that this process owns."""
    wanted = sharding.addressable_devices
    if len(owners) != len(wanted):
        raise ValueError(f"Expected {len(wanted)} per-device arrays (this is how many devices are "
                         f"addressable by the sharding), but got {len(owners)}")
    if len(set(owners)) != len(owners):
        raise ValueError(
            "When making an array from single-device arrays, the input arrays must be from "
            f"distinct devices, but got device IDs {[d.id for d in owners]}")
    if set(owners) != wanted:
        lacking, extra = wanted - set(owners), set(owners) - wanted
        raise ValueError(
            "Addressable devices and per-device arrays devices do not match."
            + (f" Sharding contains devices {_ids(lacking)} that are not present in per-device "
               "arrays." if lacking else "")
            + (f" Per-device arrays contain devices {_ids(extra)} that are not present in the "
               "sharding." if extra else ""))


def _ids(devices: set[Device]) -> str:
    return "{" + ", ".join(str(d.id) for d in sorted(devices)) + "}"


def stored_blocks(aval: ArrayType, sharding: Sharding, blocks: Mapping[Device, Block]) -> Storage:
    """The data of an array of this type, from the blocks of this process's devices.

    Raises ValueError for a block whose dtype or shape is not that of type and sharding.
    """
    wanted = sharding.shard_shape(aval.shape)
    for data, dtype in blocks.values():
        if dtype != aval.dtype:
            raise ValueError("Input buffers to `Array` must have matching dtypes. Got "
                             f"{dtype}, expected {aval.dtype} for buffer: {data}")
        if data.shape != wanted:
            raise ValueError(f"Expected shard shape {wanted} doesn't match the single device array "
                             f"shape {data.shape}. Shape of Array is {aval.str_short()} with "
                             f"sharding {sharding}")
    if not sharding.is_fully_addressable:
        return LocalBlocks({d: frozen(data) for d, (data, _) in blocks.items()})
    return assemble({d: data for d, (data, _) in blocks.items()}, sharding, aval.shape, aval.dtype)


# -- whole values ----------------------------------------------------------------------------------

PENDING_SUM = (
    "device_indices_map doesn't work with unreduced. Each device holds a partial sum of the whole "
    "value; bring it to a spec without unreduced axes first, with `reshard`.")


def is_readable(sharding: Sharding, shape: tuple[int, ...]) -> bool:
    """Does this process hold the whole value, in one array or in blocks?"""
    if sharding.is_fully_addressable:
        return True
    mine = process_index()
    return all([any([d.process_index == mine for d in devices])
                for devices in holders(block_index(sharding, shape), shape).values()])


def whole_value(storage: Storage, sharding: Sharding, aval: ArrayType) -> np.ndarray:
    """The global value, read-only.

    Raises NotImplementedError for a partial sum, RuntimeError where others hold a part.
    """
    if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:
        raise NotImplementedError(PENDING_SUM)
    if not is_readable(sharding, aval.shape):
        raise RuntimeError(NOT_ADDRESSABLE)
    if isinstance(storage, LocalBlocks):
        storage = assemble(_all_blocks(storage.blocks, sharding, aval.shape), sharding, aval.shape,
                           aval.dtype)
    # Copies that differ: those of the first device, as elsewhere where replicas are not
    # compared; here of the first that this process owns.
    if storage.lead and not sharding.is_fully_addressable and sharding.is_fully_replicated:
        device = next(d for d in sharding.device_assignment if d in sharding.addressable_devices)
        return frozen(block_of(storage, sharding, aval.shape, device))
    return frozen(storage.data[(0,) * len(storage.lead)])


def _all_blocks(blocks: Mapping[Device, np.ndarray], sharding: Sharding, shape: tuple[int, ...]
                ) -> dict[Device, np.ndarray]:
    """The block of every device; those of other processes are replicas of local ones."""
    found = {}
    for devices in holders(block_index(sharding, shape), shape).values():
        block = next((blocks[d] for d in devices if d in blocks), None)
        if block is None:
            raise RuntimeError(NOT_ADDRESSABLE)      # the array of another process
        found.update({d: blocks.get(d, block) for d in devices})
    return found


def laid_out(data: np.ndarray, sharding: Sharding, source: Sharding | None = None) -> Stored:
    """The stored form of a whole value.

    Along unreduced axes the first devices hold all of it and the others zeros; but where such an
    axis splits a dimension of `source`, each device keeps its own block, in its place among zeros.
    """
    if isinstance(sharding, GSPMDSharding) and sharding.has_unreduced:
        raise NotImplementedError(PENDING_SUM)
    if not isinstance(sharding, NamedSharding) or not sharding.spec.unreduced:
        return Stored(frozen(data))
    spec = sharding.spec
    if not spec.axes() and not isinstance(source, NamedSharding):
        raise NotImplementedError(PENDING_SUM)
    atoms = MeshAtoms(sharding.mesh, (*spec.axes(), *spec.unreduced))
    lead = atoms.sort(atoms.of_all(sorted(spec.unreduced, key=str)))
    sizes = atoms.sizes(lead)
    keeps = np.ones(sizes + data.shape, bool)
    for k, axis in enumerate(lead):
        holder = _holder(axis, source, data.shape) if isinstance(source, NamedSharding) and (
            source.mesh.shape == sharding.mesh.shape) else np.zeros((1,) * data.ndim, int)
        here = np.arange(sizes[k]).reshape([-1 if i == k else 1 for i in range(keeps.ndim)])
        keeps &= here == holder
    return Stored(frozen(np.where(keeps, data, np.zeros((), data.dtype))), lead)


def _holder(axis: str, source: NamedSharding, shape: tuple[int, ...]) -> np.ndarray:
    """For every element, the coordinate along `axis` of the devices that hold it."""
    for dim, axes in enumerate(source.spec.padded(len(shape)).entries):
        stride = shape[dim]
        for name in axes:
            size = source.mesh.axis_size(name)
            stride //= size
            if name == axis:
                index = np.arange(shape[dim]) // stride % size
                return index.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    return np.zeros((1,) * len(shape), int)


# -- one device's part -----------------------------------------------------------------------------

@cached(64, "which of the devices that hold the same block each device is")
def _replica_ids(sharding: Sharding, shape: tuple[int, ...]) -> dict[Device, int]:
    index = common_devices_indices_map(sharding, shape)
    return {d: i for devices in holders(index, shape).values() for i, d in enumerate(devices)}


class Shard:
    """What one device holds of an array; from `x.addressable_shards` and `x.global_shards`.

    device: the device. data: its block as an array on that device alone, None where another
    process owns the device. index: the slices of the global array. replica_id: how many devices
    before this one, in the order of the sharding, hold the same slices. Both raise
    NotImplementedError for partial sums, which are no slices of the value.

    >>> mesh = st.make_mesh((4, 2), ("x", "y"))
    >>> x = st.device_put(np.arange(8), st.NamedSharding(mesh, P("x")))
    >>> shard = x.addressable_shards[3]
    >>> shard.device, shard.index, shard.replica_id, shard.data
    (CpuDevice(id=3), (slice(2, 4, None),), 1, Array([2, 3], dtype=int32))
    """

    __slots__ = ("_shape", "_sharding", "data", "device")

    def __init__(self, device: Device, sharding: Sharding, shape: tuple[int, ...],
                 data: Any) -> None:
        self.device = device
        self.data = data
        self._sharding = sharding
        self._shape = shape

    @property
    def index(self) -> tuple[slice, ...]:
        """The slices of the global array, `slice(None)` for a dimension that is not split."""
        return common_devices_indices_map(self._sharding, self._shape)[self.device]

    @property
    def replica_id(self) -> int:
        """Number of devices before this one that hold the same slices."""
        return _replica_ids(self._sharding, self._shape)[self.device]

    def __repr__(self) -> str:
        return (f"Shard(device={self.device!r}, index={self.index}, "
                f"replica_id={self.replica_id}, data={self.data})")
