"""Functions whose batching is given by hand, as in `jax.custom_batching`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.batching.custom_vmap import custom_vmap, sequential_vmap

__all__ = ["custom_vmap", "sequential_vmap"]
_bound_names(globals())
