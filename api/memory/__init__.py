"""Memory spaces, as in `jax.memory`."""
from shardtrace.ir.meshes.memory import MemorySpace as Space

__all__ = ["Space"]
