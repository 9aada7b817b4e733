"""Pytrees of arrays as one vector, as in `jax.flatten_util`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.tracer.flatten_util import ravel_pytree

__all__ = ["ravel_pytree"]
