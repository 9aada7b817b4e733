"""Values that are laid out alike, as in `jax.experimental.shard_alike`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.lax.sharding import shard_alike

__all__ = ["shard_alike"]
_bound_names(globals())
