"""The parts of `jax.scipy` that are here: `linalg`, `sparse.linalg`, `special` and `stats`."""
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.scipy import linalg, sparse, special, stats

__all__ = ["linalg", "sparse", "special", "stats"]
_bound_names(globals())
