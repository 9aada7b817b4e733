"""The array type of older multi-process programs; see docs/migrating.md."""
from shardtrace import driver as _driver  # noqa: F401 - gives arrays their operators
from shardtrace.arrays.blocks import Shard
from shardtrace.arrays.global_device_array import (
    GlobalDeviceArray,
    get_shard_indices,
    get_shard_shape,
)
from shardtrace.ir.api_boundary import bound_names as _bound_names

__all__ = ["GlobalDeviceArray", "Shard", "get_shard_indices", "get_shard_shape"]
_bound_names(globals())
