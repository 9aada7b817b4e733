"""The parts of `jax.scipy` that are here: `linalg`, `sparse.linalg`, `special` and `stats`."""
from shardtrace.scipy import linalg, sparse, special, stats

__all__ = ["linalg", "sparse", "special", "stats"]
