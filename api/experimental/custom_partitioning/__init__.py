"""Functions with a sharding rule of the user's, as in `jax.experimental.custom_partitioning`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.custom_partitioning import custom_partitioning
from shardtrace.tracer.sharding_rules import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
)

__all__ = ["BATCHING", "ArrayMapping", "CompoundFactor", "SdyShardingRule", "custom_partitioning"]
_bound_names(globals())
