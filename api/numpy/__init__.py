"""The numpy functions over traced and sharded arrays, as in `jax.numpy`."""
import sys as _sys

from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.runtime.exchange import numpy_from_dlpack as from_dlpack
from shardtrace.tracer import array_methods as _array_methods
from shardtrace.tracer import jnp as _jnp
from shardtrace.tracer.jnp import *  # noqa: F403

_array_methods.NAMESPACE[0] = _sys.modules[__name__]

__all__: list[str] = []
__all__ += [*_jnp.__all__, "from_dlpack"]
