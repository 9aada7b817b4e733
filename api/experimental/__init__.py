"""What programs on sharding import from `jax.experimental`: `shard_map` and `mesh_utils`."""
from shardtrace.experimental import mesh_utils, shard_map

__all__ = ["mesh_utils", "shard_map"]
