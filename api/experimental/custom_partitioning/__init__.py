"""Functions with a sharding rule of the user's, as in `jax.experimental.custom_partitioning`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.tracer.custom_partitioning import custom_partitioning

__all__ = ["custom_partitioning"]
