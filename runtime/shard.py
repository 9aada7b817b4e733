"""One device's part of an array."""
from __future__ import annotations

from typing import Any

from ..ir.device import Device
from ..ir.sharding import Sharding


class Shard:
    """What one device holds of an array.

    device: the device. data: its block as an array on that device alone, None where another
    process owns the device. index: the slices of the global array. replica_id: how many devices
    before this one, in the order of the sharding, hold the same slices. Both raise
    NotImplementedError for partial sums, which are no slices of the value.
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
        return self._sharding.devices_indices_map(self._shape)[self.device]

    @property
    def replica_id(self) -> int:
        places = self._sharding.devices_indices_map(self._shape)
        mine = places[self.device]
        count = 0
        for device, index in places.items():
            if device is self.device:
                break
            count += index == mine
        return count

    def __repr__(self) -> str:
        return (f"Shard(device={self.device!r}, index={self.index}, "
                f"replica_id={self.replica_id}, data={self.data})")
