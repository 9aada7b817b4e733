"""Types for annotations, as in `jax.typing`: what an array function accepts."""
from shardtrace.ir.values.array import ArrayLike, DTypeLike

__all__ = ["ArrayLike", "DTypeLike"]
