"""The part of `jax.scipy.sparse` that is here: `shardtrace.scipy.sparse.linalg`."""
from shardtrace.scipy.sparse import linalg

__all__ = ["linalg"]
