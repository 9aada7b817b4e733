"""Minima of functions, as in `jax.scipy.optimize`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.scipy.optimize import OptimizeResults, minimize

__all__ = ["OptimizeResults", "minimize"]
_bound_names(globals())
