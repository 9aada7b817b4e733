"""`shard_map` where older programs import it from."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.tracer.shard_map.older_names import shard_map

__all__ = ["shard_map"]
