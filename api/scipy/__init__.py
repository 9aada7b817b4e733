"""The parts of `jax.scipy` that are here: fft, linalg, optimize, sparse.linalg, special, stats."""
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.scipy import fft, linalg, optimize, sparse, special, stats

__all__ = ["fft", "linalg", "optimize", "sparse", "special", "stats"]
_bound_names(globals())
