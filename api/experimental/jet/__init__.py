"""Taylor series through functions, as in `jax.experimental.jet`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.jet import fact, jet

__all__ = ["fact", "jet"]
_bound_names(globals())
