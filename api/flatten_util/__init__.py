"""Pytrees of arrays as one vector, as in `jax.flatten_util`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.flatten_util import ravel_pytree

__all__ = ["ravel_pytree"]
_bound_names(globals())
