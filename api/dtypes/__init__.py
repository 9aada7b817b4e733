"""Asking about dtypes, as in `jax.dtypes`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.dtypes import float0
from shardtrace.tracer.jnp import bfloat16, finfo, iinfo, issubdtype, result_type

__all__ = ["bfloat16", "finfo", "float0", "iinfo", "issubdtype", "result_type"]
