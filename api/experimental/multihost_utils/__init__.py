"""Values that processes tell each other, as in `jax.experimental.multihost_utils`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.arrays.multihost import (
    assert_equal,
    broadcast_one_to_all,
    global_array_to_host_local_array,
    host_local_array_to_global_array,
    process_allgather,
    sync_global_devices,
)
from shardtrace.ir.api_boundary import bound_names as _bound_names

__all__ = [
    "assert_equal",
    "broadcast_one_to_all",
    "global_array_to_host_local_array",
    "host_local_array_to_global_array",
    "process_allgather",
    "sync_global_devices",
]
_bound_names(globals())
