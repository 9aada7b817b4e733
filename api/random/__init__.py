"""Random numbers from explicit keys, as in `jax.random`, with the same numbers."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.tracer.random import *  # noqa: F403
from shardtrace.tracer.random import __all__ as __all__
