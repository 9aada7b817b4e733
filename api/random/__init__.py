"""Random numbers from keys, as in `jax.random`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.tracer import random as _random
from shardtrace.tracer.primitives import primitives_of as _primitives_of
from shardtrace.tracer.random import *  # noqa: F403

__all__: list[str] = []
__all__ += _random.__all__
__getattr__ = _primitives_of("shardtrace.random")
