"""Rotations, as in `jax.scipy.spatial`."""
from shardtrace.scipy.spatial import transform

__all__ = ["transform"]
