"""The array type of older multi-process programs; see docs/migrating.md."""
from shardtrace import driver as _driver  # noqa: F401 - gives arrays their operators
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.runtime.arrays.blocks import Shard
from shardtrace.runtime.arrays.global_device_array import (
    GlobalDeviceArray,
    get_shard_indices,
    get_shard_shape,
)

__all__ = ["GlobalDeviceArray", "Shard", "get_shard_indices", "get_shard_shape"]
_bound_names(globals())
