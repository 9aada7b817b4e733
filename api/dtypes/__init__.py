"""Asking about dtypes, as in `jax.dtypes`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.ir.diagnostics.errors import TypePromotionError
from shardtrace.ir.dtypes import extended, float0, itemsize_bits, prng_key, scalar_type_of
from shardtrace.tracer.jnp import bfloat16, finfo, iinfo, issubdtype, result_type
from shardtrace.tracer.jnp.creation.dtypes import canonicalize_dtype

__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "result_type",
    "scalar_type_of",
]
_bound_names(globals())
