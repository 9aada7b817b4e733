"""Images at coordinates, as in `jax.scipy.ndimage`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.scipy.interpolate import map_coordinates

__all__ = ["map_coordinates"]
_bound_names(globals())
