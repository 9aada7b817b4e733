"""Rotations in three dimensions, as in `jax.scipy.spatial.transform`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.scipy.rotations import Rotation, Slerp

__all__ = ["Rotation", "Slerp"]
_bound_names(globals())
