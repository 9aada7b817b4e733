"""Grids of devices, as in `jax.experimental.mesh_utils`."""
from shardtrace.runtime.mesh_utils import create_device_mesh, create_hybrid_device_mesh

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]
