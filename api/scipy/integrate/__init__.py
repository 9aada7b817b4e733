"""Integrals of samples, as in `jax.scipy.integrate`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.jnp import trapezoid

__all__ = ["trapezoid"]
_bound_names(globals())
