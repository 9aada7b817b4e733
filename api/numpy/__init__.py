"""The numpy functions over traced and sharded arrays, as in `jax.numpy`.

`import shardtrace.numpy as jnp` and write numpy. What differs: arrays are immutable
(`x.at[i].set(v)` gives a new one), dtypes are of 32 bits unless x64 is enabled, shapes must be
known under `jit`, and many functions take `out_sharding=`, a PartitionSpec of the result.

Where to begin: `array`, `zeros`, `arange` make arrays; `matmul`, `einsum` multiply them; `sum`,
`mean`, `max` reduce them; `reshape`, `transpose`, `concatenate` rearrange them; `where`, `take` and
`x[...]` choose from them. `linalg` and `fft` are modules. Each docstring says what becomes of the
sharding over Auto, Explicit and Manual mesh axes.

>>> import shardtrace.numpy as jnp
>>> jnp.arange(6).reshape(2, 3).sum(axis=0)
Array([3, 5, 7], dtype=int32)
"""
import sys as _sys
import typing as _typing

from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.arrays.devices import devices as _devices
from shardtrace.arrays.exchange import numpy_from_dlpack as _from_dlpack
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.ir.api_boundary import public as _public
from shardtrace.ir.support.lazy import lazy_names as _lazy_names
from shardtrace.tracer import jnp as _jnp
from shardtrace.tracer.arrays import array_methods as _array_methods
from shardtrace.tracer.jnp import *  # noqa: F403
from shardtrace.tracer.jnp import array_api as _array_api
from shardtrace.tracer.jnp.array_api import __array_api_version__ as __array_api_version__
from shardtrace.tracer.jnp.array_api import __array_namespace_info__ as __array_namespace_info__

if _typing.TYPE_CHECKING:
    from shardtrace.numpy import fft as fft
    from shardtrace.numpy import linalg as linalg

from_dlpack = _from_dlpack
_array_methods.NAMESPACE[0] = _sys.modules[__name__]
_array_api.DEVICES[0] = _devices
__getattr__, __dir__ = _lazy_names(__name__, {
    "fft": (), "linalg": (), "shardtrace.tracer.jnp": _jnp.LAZY_NAMES}, _public)

# What `import *` asks for. Type checkers read the imports: they know no list that is computed.
globals()["__all__"] = ["fft", "linalg", *_jnp.__all__, *_jnp.LAZY_NAMES, "from_dlpack"]
_bound_names(globals(), "vectorize")
