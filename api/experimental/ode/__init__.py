"""Ordinary differential equations, as in `jax.experimental.ode`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.ode import odeint

__all__ = ["odeint"]
_bound_names(globals())
