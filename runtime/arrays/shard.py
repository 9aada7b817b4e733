"""One device's part of an array."""
from __future__ import annotations

from typing import Any

from ...ir.device import Device
from ...ir.shardings.sharding import Sharding


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
        return self._sharding.devices_indices_map(self._shape)[self.device]

    @property
    def replica_id(self) -> int:
        """Number of devices before this one that hold the same slices."""
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
