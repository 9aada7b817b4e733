"""Iterative solvers of linear systems, as in `jax.scipy.sparse.linalg`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.scipy.iterative import bicgstab, cg, gmres

__all__ = ["bicgstab", "cg", "gmres"]
_bound_names(globals())
