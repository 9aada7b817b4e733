"""Grids of devices for `Mesh`, as `jax.experimental.mesh_utils` makes them.

Simulated devices have no physical topology, so the order is that of their ids.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.device import Device
from .devices import devices as all_devices


def create_device_mesh(mesh_shape: Sequence[int], devices: Sequence[Device] | None = None, *,
                       contiguous_submeshes: bool = False,
                       allow_split_physical_axes: bool = False) -> np.ndarray[Any, Any]:
    """All devices (or `devices`) as an array of shape `mesh_shape`; the flags change nothing here.

    Raises ValueError if the shape does not take up exactly the devices.
    """
    chosen = list(all_devices() if devices is None else devices)
    if len(chosen) != math.prod(mesh_shape):
        raise ValueError(f"Number of devices {len(chosen)} must equal the product of mesh_shape "
                         f"{tuple(mesh_shape)}")
    grid = np.empty(len(chosen), dtype=object)
    grid[:] = chosen
    return grid.reshape(tuple(mesh_shape))
