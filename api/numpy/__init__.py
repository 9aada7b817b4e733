"""The numpy functions over traced and sharded arrays, as in `jax.numpy`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.tracer.jnp import *  # noqa: F403
from shardtrace.tracer.jnp import __all__ as __all__
