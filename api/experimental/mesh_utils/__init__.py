"""Grids of devices, as in `jax.experimental.mesh_utils`."""
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.runtime.devices import create_device_mesh, create_hybrid_device_mesh

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]
_bound_names(globals())
