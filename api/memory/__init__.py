"""Memory spaces, as in `jax.memory`."""
from shardtrace.ir.memory import MemorySpace as Space

__all__ = ["Space"]
