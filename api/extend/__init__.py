"""What extensions of JAX import from `jax.extend`: the parts of programs, in `core`."""
from shardtrace.extend import core

__all__ = ["core"]
