"""Several processes: `jax.distributed`, and what simulates it where there is one machine."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.arrays.processes.simulated import as_process, run_processes
from shardtrace.engines.distributed import initialize, is_initialized, shutdown
from shardtrace.ir.api_boundary import bound_names as _bound_names

__all__ = ["as_process", "initialize", "is_initialized", "run_processes", "shutdown"]
_bound_names(globals())
