"""The numpy functions over traced and sharded arrays, as in `jax.numpy`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.tracer import jnp as _jnp
from shardtrace.tracer.jnp import *  # noqa: F403

__all__: list[str] = []
__all__ += _jnp.__all__
