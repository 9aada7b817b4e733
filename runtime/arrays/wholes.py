"""The whole value of an array from what its devices hold, as far as this process has it."""
from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...ir.device import Device, process_index
from ...ir.shardings.sharding import NamedSharding, Sharding
from ...ir.types import ArrayType
from ..storage import LocalBlocks, Storage, assemble, block_index, block_of, frozen

PENDING_SUM = (
    "device_indices_map doesn't work with unreduced. Each device holds a partial sum of the whole "
    "value; bring it to a spec without unreduced axes first, with `reshard`.")


NOT_ADDRESSABLE = (
    "Fetching value for `jax.Array` that spans non-addressable (non process local) devices is not "
    "possible. You can use `jax.experimental.multihost_utils.process_allgather` to print the "
    "global array or use `.addressable_shards` method of jax.Array to inspect the addressable "
    "(process local) shards.")

Place = tuple[tuple[int, int], ...]
"""Of a block: along each dimension the first row and the one after the last."""


def is_readable(sharding: Sharding, shape: tuple[int, ...]) -> bool:
    """Whether this process holds the whole value, in blocks or in one."""
    if sharding.is_fully_addressable:
        return True
    if sharding.is_fully_replicated and sharding.addressable_devices:
        return True
    places, mine = _places(sharding, shape), process_index()
    return {p for d, p in places.items() if d.process_index == mine} == {*places.values()}


def whole_value(storage: Storage, sharding: Sharding, aval: ArrayType) -> np.ndarray:
    """The global value, read-only.

    Raises NotImplementedError for a partial sum, and RuntimeError where other processes hold a
    part of it.
    """
    if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:
        raise NotImplementedError(PENDING_SUM)
    if not is_readable(sharding, aval.shape):
        raise RuntimeError(NOT_ADDRESSABLE)
    if isinstance(storage, LocalBlocks):
        blocks = _all_blocks(storage.blocks, _places(sharding, aval.shape))
        storage = assemble(blocks, sharding, aval.shape, aval.dtype)
    # Copies that differ: those of the first device, as elsewhere where replicas are not
    # compared; here of the first that this process owns.
    if storage.lead and not sharding.is_fully_addressable and sharding.is_fully_replicated:
        owned = next(d for d in sharding.device_assignment if d in sharding.addressable_devices)
        return frozen(block_of(storage, sharding, aval.shape, owned))
    return frozen(storage.data[(0,) * len(storage.lead)])


def _places(sharding: Sharding, shape: tuple[int, ...]) -> dict[Device, Place]:
    return {d: tuple([(s.start, s.stop) for s in where])
            for d, where in block_index(sharding, shape).items()}


def _all_blocks(blocks: Mapping[Device, np.ndarray], places: Mapping[Device, Place]
                ) -> dict[Device, np.ndarray]:
    """For every device its block; those of other processes are equal to some of this one's."""
    owner: dict[Place, Device] = {}
    for d, place in places.items():
        if d in blocks:
            owner.setdefault(place, d)
    if not owner.keys() >= {*places.values()}:
        raise RuntimeError(NOT_ADDRESSABLE)      # the array of another process
    return {d: blocks[owner[place]] for d, place in places.items()}
