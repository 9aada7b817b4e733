"""Matrix decompositions, as in `jax.lax.linalg`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.lax import linalg as _linalg
from shardtrace.tracer.lax.linalg import *  # noqa: F403
from shardtrace.tracer.primitives import primitives_of as _primitives_of

__all__: list[str] = []
__all__ += _linalg.__all__
__getattr__ = _primitives_of("shardtrace.lax.linalg")
_bound_names(globals())
