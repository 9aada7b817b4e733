"""Neural network functions, as in `jax.nn`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.nn import initializers
from shardtrace.tracer import nn as _nn
from shardtrace.tracer.nn import *  # noqa: F403

__all__: list[str] = ["initializers"]
__all__ += _nn.__all__
