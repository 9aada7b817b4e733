"""The simulated devices, and meshes of them.

There are `config.jax_num_cpu_devices` devices, owned by one process, or dealt to several inside
`as_process` (arrays/processes/simulated.py). Unlike in JAX, the number may be changed at any time:
a device is only a name, and arrays keep theirs. Names and messages are those of `jax` 0.10.2.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.diagnostics.diagnostic import fail
from ..ir.meshes.device import Device
from ..ir.meshes.mesh import AxisType, Mesh
from ..ir.meshes.process import process_identity
from ..ir.settings.context import config
from ..ir.support.caches import cached

PLATFORMS = ("cpu",)
_ACCELERATORS = ("cuda", "gpu", "rocm", "tpu")


@cached(64, "simulated devices")
def _all_devices(count: int) -> tuple[Device, ...]:
    return tuple(Device(i) for i in range(count))


def _global_devices() -> tuple[Device, ...]:
    dealt = len(process_identity().owners)
    return _all_devices(dealt or int(config.read("jax_num_cpu_devices")))


def _check_backend(backend: str | None) -> None:
    if backend is None or backend in PLATFORMS:
        return
    if backend in _ACCELERATORS:
        raise RuntimeError(
            f"Unknown backend: {backend!r} requested, but no platforms that are instances of "
            f"{backend} are present. Platforms present are: {','.join(PLATFORMS)}")
    raise RuntimeError(f"Unknown backend {backend}. Available backends are {list(PLATFORMS)}")


def devices(backend: str | None = None) -> list[Device]:
    """All devices of all processes, by id. Raises RuntimeError for a platform there is not.

    >>> st.devices()[:2]
    [CpuDevice(id=0), CpuDevice(id=1)]
    """
    _check_backend(backend)
    return list(_global_devices())


def local_devices(process_index: int | None = None, backend: str | None = None,
                  host_id: int | None = None) -> list[Device]:
    """The devices that a process (default: the caller's) owns. `host_id` is its old name.

    Raises ValueError for an unknown process.

    >>> with st.distributed.as_process(2, of=4):
    ...     st.local_devices(), st.local_devices(process_index=0)
    ([CpuDevice(id=4), CpuDevice(id=5)], [CpuDevice(id=0), CpuDevice(id=1)])
    """
    if host_id is not None:
        process_index = host_id
    if process_index is None:
        process_index = process_identity().index
    if not 0 <= process_index < process_count():
        raise ValueError(f"Unknown process_index {process_index}")
    return [d for d in devices(backend) if d.process_index == process_index]


def device_count(backend: str | None = None) -> int:
    """The number of devices of all processes together.

    >>> st.device_count()
    8
    """
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """The number of devices that the calling process owns.

    >>> with st.distributed.as_process(2, of=4):
    ...     st.local_device_count()
    2
    """
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """The process that the calling thread belongs to; 0 if there is one only.

    >>> st.process_index()
    0
    >>> with st.distributed.as_process(2, of=4):
    ...     st.process_index()
    2
    """
    _check_backend(backend)
    return process_identity().index


def process_count(backend: str | None = None) -> int:
    """The number of processes.

    >>> with st.distributed.as_process(2, of=4):
    ...     st.process_count()
    4
    """
    _check_backend(backend)
    return process_identity().count


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes.

    >>> with st.distributed.as_process(2, of=4):
    ...     st.process_indices()
    [0, 1, 2, 3]
    """
    return list(range(process_count(backend)))


def default_backend() -> str:
    """The platform of the devices: `cpu`.

    >>> st.default_backend()
    'cpu'
    """
    return PLATFORMS[0]


def using_default_device(device: Device | str | None) -> Any:
    """A `with` block in which uncommitted arrays are made on `device` (`jax.default_device`).

    >>> with st.default_device(st.devices()[3]):
    ...     jnp.ones(2).devices()
    {CpuDevice(id=3)}
    """
    return config.override(jax_default_device=device)


def default_device() -> Device:
    """The device that an array without a sharding of its own lives on."""
    selected = config.read("jax_default_device")
    if isinstance(selected, Device):
        return selected
    if selected is None:
        who = process_identity()
        if not who.index and not who.owners:            # all devices are its own
            return _global_devices()[0]
    return local_devices(backend=selected)[0]


def make_mesh(axis_shapes: Sequence[int], axis_names: str | Sequence[Any],
              axis_types: AxisType | tuple[AxisType, ...] | None = None, *,
              devices: Sequence[Device] | None = None) -> Mesh:
    """A mesh of the first devices (or of `devices`), as many as the axes ask for.

    axis_types: one a mesh axis; without them all axes are of the type that
      `config.default_axis_types` names ("auto" or "explicit").
    Raises ValueError if there are too few devices, or if shapes, names and types do not match.

    Sharding
      Auto (the default): the partitioner decides what is split over the axis.
      Explicit: the types of values do, op by op.
      Manual: your code does; `shard_map` makes axes Manual, so `axis_types` seldom says so.

    >>> st.make_mesh((2, 4), ("data", "model"))
    Mesh(axis_sizes=(2, 4), axis_names=('data', 'model'), axis_types=(Auto, Auto))
    """
    shapes = tuple(axis_shapes)
    if not all(hasattr(n, "__index__") for n in shapes):
        raise ValueError("`axis_shapes` passed to `make_mesh` should be a sequence of ints. Got "
                         f"{shapes}")
    sizes = tuple([operator.index(n) for n in shapes])
    names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
    grid = _global_devices() if devices is None else tuple(np.asarray(devices, dtype=object).flat)
    count = math.prod(sizes)
    if any(n < 0 for n in sizes):
        raise ValueError(f"Mesh axes cannot have negative sizes. Got mesh_shape {sizes}")
    if len(grid) < count:
        fail(ValueError,
             f"Number of devices {len(grid)} must be >= the product of mesh_shape {sizes}",
             code="too-few-devices", label=f"the mesh needs {count} devices",
             help=f"simulate more: set `jax_num_cpu_devices` to {count}, with `config.update`; "
                  "to plan without running, take `AbstractMesh`")
    if axis_types is None:
        default = config.read("default_axis_types")
        kind = AxisType.Explicit if default == "explicit" else AxisType.Auto
        axis_types = (kind,) * len(names)
    return Mesh(np.array(grid[:count], dtype=object).reshape(sizes), names, axis_types)


# -- grids of devices, as `jax.experimental.mesh_utils` makes them ---------------------------------
# Simulated devices have no physical topology, so the order is that of their ids.

def _sizes(shape: Any) -> tuple[int, ...]:
    try:
        return tuple([operator.index(n) for n in shape])
    except TypeError:
        raise ValueError("`mesh_shape` passed to `create_device_mesh` should be a sequence of "
                         f"ints. Got {shape}") from None


def create_device_mesh(mesh_shape: Sequence[int], devices: Sequence[Device] | None = None, *,
                       contiguous_submeshes: bool = False,
                       allow_split_physical_axes: bool = False) -> np.ndarray[Any, Any]:
    """All devices (or `devices`) as an array of shape `mesh_shape`; the flags change nothing here.

    Raises ValueError if the shape does not take up exactly the devices.

    >>> from shardtrace.experimental import mesh_utils
    >>> from shardtrace.sharding import Mesh
    >>> Mesh(mesh_utils.create_device_mesh((4, 2)), ("x", "y"))
    Mesh(axis_sizes=(4, 2), axis_names=('x', 'y'), axis_types=(Auto, Auto))
    """
    shape = _sizes(mesh_shape)
    selected = list(_global_devices() if devices is None else devices)
    if len(selected) != math.prod(shape):
        raise ValueError(f"Number of devices {len(selected)} must equal the product of mesh_shape "
                         f"{shape}")
    grid = np.empty(len(selected), dtype=object)
    grid[:] = selected
    return grid.reshape(shape)


def create_hybrid_device_mesh(mesh_shape: Sequence[int], dcn_mesh_shape: Sequence[int],
                              devices: Sequence[Device] | None = None, *,
                              process_is_granule: bool = False,
                              should_sort_granules_by_key: bool = True,
                              allow_split_physical_axes: bool = False) -> np.ndarray[Any, Any]:
    """Devices as a grid whose axes are each a slow network between groups and a fast one within.

    mesh_shape, dcn_mesh_shape: sizes of the fast and of the slow part of each axis; axis i of the
      result has their product. process_is_granule: groups are the devices of one process; without
      it devices must say what slice they belong to, which simulated ones do not.
    Raises ValueError if there are not as many groups, or devices in one, as the shapes ask for.

    >>> from shardtrace.experimental import mesh_utils
    >>> mesh_utils.create_hybrid_device_mesh((2, 4), (1, 1), process_is_granule=True).shape
    (2, 4)
    """
    selected = list(_global_devices() if devices is None else devices)
    attribute = "process_index" if process_is_granule else "slice_index"
    if not hasattr(selected[0], attribute):
        raise ValueError(f"Device {selected[0]} does not have attribute {attribute}. See "
                         "`process_is_granule` option.")
    groups: dict[int, list[Device]] = {}
    for device in selected:
        groups.setdefault(getattr(device, attribute), []).append(device)
    keys = sorted(groups) if should_sort_granules_by_key else list(groups)
    per_group, outer = _sizes(mesh_shape), _sizes(dcn_mesh_shape)
    if math.prod(outer) != len(groups):
        raise ValueError(f"Number of slices {len(groups)} must equal the product of "
                         f"dcn_mesh_shape {outer}")
    grid = np.empty([a * b for a, b in zip(per_group, outer, strict=True)], dtype=object)
    for key, place in zip(keys, np.ndindex(*outer), strict=True):
        at = tuple([slice(p * n, (p + 1) * n) for p, n in zip(place, per_group, strict=True)])
        grid[at] = create_device_mesh(per_group, groups[key])
    return grid
