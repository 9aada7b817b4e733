"""Devices, the elements of meshes, and the processes that own them.

A device is a name with a number; the runtime makes devices and knows what they can do. Devices are
interned, so one is the same object everywhere, even after pickling. Which process owns a device
depends on the calling thread's process (ir/meshes/process.py), unless the device states it itself.
"""

from __future__ import annotations

from typing import Any

from ..support.immutable import immutable
from ..support.interning import Immutable, InternTable
from .process import process_identity, process_index, process_scope, set_default_process_index

__all__ = [
    "AbstractDevice", "Device", "Memory", "process_index", "process_scope",
    "set_default_process_index",
]

MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")


# --------------------------------------------------------------------------- devices


_TABLE: InternTable[Any] = InternTable()


class Device(Immutable):
    """One device: `CpuDevice(id=3)`. Made by the runtime only; users get them from `devices()`.

    Devices are compared by identity and ordered by id. `id` is unique over all processes,
    `local_hardware_id` within `process_index`. A device of process 0 is one that does not say whose
    it is: it belongs to the process that it was dealt to, if there are several.

    >>> device = st.devices()[3]
    >>> device, device.process_index, [memory.kind for memory in device.addressable_memories()]
    (CpuDevice(id=3), 0, ['device', 'pinned_host', 'unpinned_host'])
    """

    __slots__ = ("__weakref__", "_home", "_number", "device_kind", "id", "memory_kinds",
                 "platform")

    id: int
    platform: str
    device_kind: str
    memory_kinds: tuple[str, ...]

    def __new__(
        cls, id: int, process_index: int = 0, platform: str = "cpu", device_kind: str = "cpu",
        local_hardware_id: int | None = None, memory_kinds: tuple[str, ...] = MEMORY_KINDS,
    ) -> Device:
        local = id if local_hardware_id is None else local_hardware_id
        key = (id, process_index, platform, device_kind, local, memory_kinds)
        device = _TABLE.get(key)
        if device is None:
            device = object.__new__(cls)
            put = object.__setattr__
            put(device, "id", id)
            put(device, "_home", process_index)
            put(device, "platform", platform)
            put(device, "device_kind", device_kind)
            put(device, "_number", local)
            put(device, "memory_kinds", tuple(memory_kinds))
            device = _TABLE.add(key, device)
        return device

    def __reduce__(self) -> tuple:
        return Device, (self.id, self._home, self.platform, self.device_kind, self._number,
                        self.memory_kinds)

    @property
    def process_index(self) -> int:
        """The process that owns this device."""
        if self._home:
            return self._home
        owners = process_identity().owners
        return owners[self.id] if self.id < len(owners) else 0

    @property
    def local_hardware_id(self) -> int:
        """The number of this device among those of its process."""
        owners = process_identity().owners
        if self._home or self._number != self.id or self.id >= len(owners):
            return self._number
        return owners[:self.id].count(owners[self.id])

    @property
    def host_id(self) -> int:
        """The old name of `process_index`."""
        return self.process_index

    @property
    def is_addressable(self) -> bool:
        """Whether the calling process owns this device."""
        return self.process_index == process_index()

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"

    # Ordered by id so that sets of devices can be sorted; equality stays identity.

    def __lt__(self, other: Any) -> bool:
        return self.id < other.id if isinstance(other, Device) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self.id <= other.id if isinstance(other, Device) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self.id > other.id if isinstance(other, Device) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self.id >= other.id if isinstance(other, Device) else NotImplemented

    # -- memories

    def memory(self, kind: str) -> Memory:
        """The memory of that kind; ValueError naming the kinds there are otherwise."""
        check_memory_kind(self, kind)
        return Memory(self, kind)

    def default_memory(self) -> Memory:
        """The memory in which arrays are placed by default."""
        return Memory(self, self.memory_kinds[0])

    def addressable_memories(self) -> list[Memory]:
        """All memories that this device can address, the default one first."""
        return [Memory(self, kind) for kind in self.memory_kinds]

    def memory_stats(self) -> dict[str, int] | None:
        """Memory figures, where the platform has them; None on CPU."""
        return None


def check_memory_kind(device: Device, kind: Any) -> None:
    """Raise ValueError, in JAX's words, unless `device` has memory of that kind."""
    if kind not in device.memory_kinds:
        raise ValueError(
            f"Could not find memory addressable by device {device.device_kind}. Device "
            f"{device.device_kind} can address the following memory kinds: "
            f"{', '.join(device.memory_kinds)}. Got memory kind: {kind}"
        )


@immutable
class Memory:
    """A memory space of a device: kinds are `device`, `pinned_host` and `unpinned_host`."""

    device: Device
    kind: str

    @property
    def id(self) -> int:
        kinds = self.device.memory_kinds
        return self.device.id * len(kinds) + kinds.index(self.kind)

    @property
    def platform(self) -> str:
        return self.device.platform

    @property
    def process_index(self) -> int:
        return self.device.process_index

    def addressable_by_devices(self) -> list[Device]:
        """Devices that can read this memory: its own."""
        return [self.device]

    def __repr__(self) -> str:
        prefix = self.device.platform.capitalize()
        space = "".join(word.capitalize() for word in self.kind.split("_"))
        name = f"{prefix}DeviceMemory" if self.kind == "device" else f"{space}Memory"
        return f"{name}(id={self.id}, process_index={self.process_index}, client={self.platform})"

    def __str__(self) -> str:
        kind = f"{self.platform}_device" if self.kind == "device" else self.kind
        return f"{kind.upper()}_{self.id}"


@immutable
class AbstractDevice:
    """What a mesh remembers of its devices when the devices themselves are left out.

    >>> st.make_mesh((8,), ("x",)).abstract_mesh.abstract_device
    AbstractDevice(device_kind=cpu, num_cores=None, platform=cpu)
    """

    device_kind: str
    num_cores: int | None
    platform: str

    def describe(self) -> str:
        """The fields as they stand in the repr of an abstract mesh."""
        return (f"device_kind={self.device_kind}, num_cores={self.num_cores}, "
                f"platform={self.platform}")

    def __repr__(self) -> str:
        return f"AbstractDevice({self.describe()})"
