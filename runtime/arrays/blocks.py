"""Arrays from the blocks of their devices: what fits, and what JAX says about what does not."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.device import Device
from ...ir.shardings.sharding import Sharding
from ...ir.types import ArrayType
from ..storage import LocalBlocks, Storage, assemble, frozen

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
    """The data of an array of this type, given the blocks of this process's devices.

    Raises ValueError where a block has another dtype or shape than type and sharding say.
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
