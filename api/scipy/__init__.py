"""The part of `jax.scipy` that is here: `shardtrace.scipy.special`."""
from shardtrace.scipy import special

__all__ = ["special"]
