"""The error classes, with the names of `jax.errors` and those that JAX keeps private."""
from shardtrace.ir.diagnostics import errors as _errors
from shardtrace.ir.diagnostics.errors import *  # noqa: F403

__all__ = _errors.__all__
