"""Interpolation on grids, as in `jax.scipy.interpolate`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.scipy.interpolate import RegularGridInterpolator

__all__ = ["RegularGridInterpolator"]
_bound_names(globals())
