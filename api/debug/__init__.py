"""Looking inside: values while a program runs, types while it is traced, pictures of shardings
(`jax.debug`, and more)."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.arrays.visualize import (
    inspect_array_sharding,
    visualize_array_sharding,
    visualize_sharding,
)
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.host.breakpoints import breakpoint
from shardtrace.tracer.host.callbacks import debug_callback as callback
from shardtrace.tracer.host.callbacks import debug_log as log
from shardtrace.tracer.host.callbacks import debug_print as print
from shardtrace.tracer.host.debug import show_types

__all__ = [
    "breakpoint",
    "callback",
    "inspect_array_sharding",
    "log",
    "print",
    "show_types",
    "visualize_array_sharding",
    "visualize_sharding",
]
_bound_names(globals())
