"""Clusters of vectors, as in `jax.scipy.cluster`."""
from shardtrace.scipy.cluster import vq

__all__ = ["vq"]
