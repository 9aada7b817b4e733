"""What every sharding can be asked: which devices hold which part of an array.

Subclasses say which devices, which memory and which tiling; the rest follows from these.
"""

from __future__ import annotations

from collections.abc import Mapping

from .device import Device, process_index
from .interning import Immutable

__all__ = ["Index", "Shape", "Sharding"]

Shape = tuple[int, ...]
Index = tuple[slice, ...]


class Sharding(Immutable):
    """How an array is laid out over devices. Abstract; see `NamedSharding`."""

    # Subclasses set these; they are what the shared methods are computed from.
    memory_kind: str | None

    @property
    def device_assignment(self) -> tuple[Device, ...]:
        """All devices, in the order in which tiles are counted."""
        raise NotImplementedError("Subclasses should implement this method.")

    @property
    def device_set(self) -> set[Device]:
        """All devices that hold a part of the array, other processes' included."""
        return set(self.device_assignment)

    @property
    def num_devices(self) -> int:
        return len(self.device_assignment)

    @property
    def is_concrete(self) -> bool:
        """Whether devices are known (not so on an abstract mesh)."""
        return True

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        raise NotImplementedError("Subclasses should implement this method.")

    @property
    def is_fully_addressable(self) -> bool:
        """Whether the calling process owns all the devices."""
        mine = process_index()
        return all(device.process_index == mine for device in self.device_assignment)

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices that the calling process owns."""
        mine = process_index()
        return {device for device in self.device_assignment if device.process_index == mine}

    @property
    def has_addressable_devices(self) -> bool:
        return bool(self.addressable_devices)

    def with_memory_kind(self, kind: str) -> Sharding:
        """The same layout in another memory of the devices."""
        raise NotImplementedError("Subclasses should implement this method.")

    def shard_shape(self, global_shape: Shape) -> Shape:
        """Shape of the part that each device holds. Raises `IndivisibleError`."""
        raise NotImplementedError("Subclasses should implement this method.")

    def devices_indices_map(self, global_shape: Shape) -> Mapping[Device, Index]:
        """Device to the slices of the global array that it holds, in order of devices."""
        raise NotImplementedError("Subclasses should implement this method.")

    def addressable_devices_indices_map(self, global_shape: Shape) -> Mapping[Device, Index]:
        """`devices_indices_map` for the devices that the calling process owns."""
        whole = self.devices_indices_map(global_shape)
        mine = process_index()
        return {d: index for d, index in whole.items() if d.process_index == mine}

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Raise ValueError unless an array of this shape has enough dimensions."""

    def tiling(self, ndim: int) -> tuple:
        """Which device, by its place in the order, holds which tile: a canonical form.

        `()` where all devices hold everything. Does not depend on names, axis types, axes of
        size 1, or on how a run of axes is cut into axes.
        """
        raise NotImplementedError("Subclasses should implement this method.")

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether both put the same parts of an array of `ndim` dimensions on the same devices.

        True for the same devices in the same order, the same tiling and the same memory kind;
        names, axis types, trailing None and axes of size 1 do not matter. Between two abstract
        meshes only tiling and memory kind are compared.
        """
        if self is other:
            return True
        if self.memory_kind != other.memory_kind or self.tiling(ndim) != other.tiling(ndim):
            return False
        if not self.is_concrete and not other.is_concrete:
            return True
        if self.is_concrete != other.is_concrete:
            return False
        return self.device_assignment == other.device_assignment
