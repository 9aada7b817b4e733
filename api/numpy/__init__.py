"""The numpy functions over traced and sharded arrays, as in `jax.numpy`."""
import sys as _sys
import typing as _typing

from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.lazy import late_names as _late_names
from shardtrace.runtime.arrays.exchange import numpy_from_dlpack as from_dlpack
from shardtrace.tracer import jnp as _jnp
from shardtrace.tracer.arrays import array_methods as _array_methods
from shardtrace.tracer.jnp import *  # noqa: F403

if _typing.TYPE_CHECKING:
    from shardtrace.numpy import fft, linalg

_array_methods.NAMESPACE[0] = _sys.modules[__name__]
__getattr__, __dir__ = _late_names(__name__, {
    "fft": (), "linalg": (), "shardtrace.tracer.jnp": _jnp.LATE_NAMES})

__all__ = ["fft", "linalg"]
__all__ += [*_jnp.__all__, *_jnp.LATE_NAMES, "from_dlpack"]
