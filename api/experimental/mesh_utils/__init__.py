"""Grids of devices, as in `jax.experimental.mesh_utils`."""
from shardtrace.arrays.devices import create_device_mesh, create_hybrid_device_mesh
from shardtrace.ir.api_boundary import bound_names as _bound_names

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]
_bound_names(globals())
