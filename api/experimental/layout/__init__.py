"""Layouts of arrays in memory, as in `jax.experimental.layout`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.driver.execution.transfer import with_layout_constraint
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.ir.shardings.formats import Format, Layout

__all__ = ["Format", "Layout", "with_layout_constraint"]
_bound_names(globals())
