"""The part of `jax.scipy.sparse` that is here: `shardtrace.scipy.sparse.linalg`."""
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.scipy.sparse import linalg

__all__ = ["linalg"]
_bound_names(globals())
