"""Looking inside: pictures of shardings, types while they are traced (`jax.debug`, and more)."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.runtime.visualize import (
    inspect_array_sharding,
    visualize_array_sharding,
    visualize_sharding,
)
from shardtrace.tracer.debug import show_types

__all__ = [
    "inspect_array_sharding",
    "show_types",
    "visualize_array_sharding",
    "visualize_sharding",
]
