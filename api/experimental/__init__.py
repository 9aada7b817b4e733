"""What programs on sharding import from `jax.experimental`, older names included."""
from shardtrace.experimental import (
           global_device_array,
           layout,
           maps,
           mesh_utils,
           multihost_utils,
           pjit,
           shard_map,
)
from shardtrace.ir.spec import PartitionSpec
from shardtrace.tracer.callbacks import io_callback

__all__ = [
    "PartitionSpec",
    "global_device_array",
    "io_callback",
    "layout",
    "maps",
    "mesh_utils",
    "multihost_utils",
    "pjit",
    "shard_map",
]
