"""`pjit`, which is `jit` now, where older programs import it from; see docs/migrating.md."""
from shardtrace.driver.jit.older_pjit import FROM_GDA, pjit, with_sharding_constraint
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.ir.spec import PartitionSpec

__all__ = ["FROM_GDA", "PartitionSpec", "pjit", "with_sharding_constraint"]
_bound_names(globals())
