"""What programs on sharding import from `jax.experimental`, older names included."""
from shardtrace.experimental import (
    checkify,
    custom_partitioning,
    global_device_array,
    jet,
    layout,
    maps,
    mesh_utils,
    multihost_utils,
    ode,
    pjit,
    shard_alike,
    shard_map,
)
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.ir.spec import PartitionSpec
from shardtrace.tracer.host.callbacks import io_callback
from shardtrace.tracer.lax.sharding import prioritized_sharding_constraint

__all__ = [
    "PartitionSpec",
    "checkify",
    "custom_partitioning",
    "global_device_array",
    "io_callback",
    "jet",
    "layout",
    "maps",
    "mesh_utils",
    "multihost_utils",
    "ode",
    "pjit",
    "prioritized_sharding_constraint",
    "shard_alike",
    "shard_map",
]
_bound_names(globals(), "shard_map")
