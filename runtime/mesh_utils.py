"""Grids of devices for `Mesh`, as `jax.experimental.mesh_utils` makes them.

Simulated devices have no physical topology, so the order is that of their ids.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.meshes.device import Device
from .devices import devices as all_devices


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
    selected = list(all_devices() if devices is None else devices)
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
    selected = list(all_devices() if devices is None else devices)
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
