"""The simulated devices, the processes that own them, and meshes of them.

There are `config.jax_num_cpu_devices` devices in each of `config.shardtrace_num_processes`
processes. Both may be changed at any time (JAX raises once devices exist): devices are names, and
arrays that live on other devices keep them. Which process a thread belongs to is set by
`ir.device.process_scope`. Names and messages are those of `jax` 0.10.2.
"""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.context import config
from ..ir.device import Device
from ..ir.device import process_index as current_process
from ..ir.diagnostic import fail
from ..ir.mesh import AxisType, Mesh

PLATFORMS = ("cpu",)
_ACCELERATORS = ("cuda", "gpu", "rocm", "tpu")


@functools.lru_cache(maxsize=64)
def _all_devices(processes: int, each: int) -> tuple[Device, ...]:
    return tuple(Device(p * each + i, p, local_hardware_id=i)
                 for p in range(processes) for i in range(each))


def _global_devices() -> tuple[Device, ...]:
    return _all_devices(int(config.read("shardtrace_num_processes")),
                        int(config.read("jax_num_cpu_devices")))


def _check_backend(backend: str | None) -> None:
    if backend is None or backend in PLATFORMS:
        return
    if backend in _ACCELERATORS:
        raise RuntimeError(
            f"Unknown backend: {backend!r} requested, but no platforms that are instances of "
            f"{backend} are present. Platforms present are: {','.join(PLATFORMS)}")
    raise RuntimeError(f"Unknown backend {backend}. Available backends are {list(PLATFORMS)}")


def devices(backend: str | None = None) -> list[Device]:
    """All devices of all processes, by id. Raises RuntimeError for a platform there is not."""
    _check_backend(backend)
    return list(_global_devices())


def local_devices(process_index: int | None = None, backend: str | None = None,
                  host_id: int | None = None) -> list[Device]:
    """The devices that a process (default: the caller's) owns. `host_id` is its old name."""
    if host_id is not None:
        process_index = host_id
    if process_index is None:
        process_index = current_process()
    if not 0 <= process_index < process_count():
        raise ValueError(f"Unknown process_index {process_index}")
    return [d for d in devices(backend) if d.process_index == process_index]


def device_count(backend: str | None = None) -> int:
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """The process that the calling thread belongs to."""
    _check_backend(backend)
    return current_process()


def process_count(backend: str | None = None) -> int:
    _check_backend(backend)
    return int(config.read("shardtrace_num_processes"))


def process_indices(backend: str | None = None) -> list[int]:
    return list(range(process_count(backend)))


def default_backend() -> str:
    """The platform of the devices: `cpu`."""
    return PLATFORMS[0]


def using_default_device(device: Device | str | None) -> Any:
    """A `with` block in which uncommitted arrays are made on `device` (`jax.default_device`)."""
    return config.override(jax_default_device=device)


def default_device() -> Device:
    """The device that an array without a sharding of its own lives on."""
    chosen = config.read("jax_default_device")
    if isinstance(chosen, Device):
        return chosen
    return local_devices(backend=chosen)[0]


def make_mesh(axis_shapes: Sequence[int], axis_names: str | Sequence[Any],
              axis_types: AxisType | tuple[AxisType, ...] | None = None, *,
              devices: Sequence[Device] | None = None) -> Mesh:
    """A mesh of the first devices (or of `devices`), as many as the axes ask for.

    axis_types: one a mesh axis; without them all axes are of the type that
      `config.default_axis_types` names ("auto" or "explicit").
    Raises ValueError if there are too few devices, or if shapes, names and types do not match.
    """
    sizes = tuple([operator.index(n) if hasattr(n, "__index__") else int(n) for n in axis_shapes])
    names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
    grid = _global_devices() if devices is None else tuple(np.asarray(devices, dtype=object).flat)
    count = math.prod(sizes)
    if any(n < 0 for n in sizes):
        raise ValueError(f"Mesh axes cannot have negative sizes. Got mesh_shape {sizes}")
    if len(grid) < count:
        fail(ValueError,
             f"Number of devices {len(grid)} must be >= the product of mesh_shape {sizes}",
             code="too-few-devices", label=f"the mesh needs {count} devices",
             help=f"simulate more: `config.update('jax_num_cpu_devices', {count})`")
    if axis_types is None:
        default = config.read("default_axis_types")
        kind = AxisType.Explicit if default == "explicit" else AxisType.Auto
        axis_types = (kind,) * len(names)
    chosen = np.empty(count, dtype=object)
    chosen[:] = grid[:count]
    return Mesh(chosen.reshape(sizes), names, axis_types)
