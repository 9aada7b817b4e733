"""`shard_map` where older programs import it from."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.shard_map.older_names import shard_map

__all__ = ["shard_map"]
_bound_names(globals(), "shard_map")
