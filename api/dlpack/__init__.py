"""Arrays from and to other libraries by the DLPack protocol, as in `jax.dlpack`."""
from shardtrace.arrays.exchange import from_dlpack, is_supported_dtype
from shardtrace.ir.api_boundary import bound_names as _bound_names

__all__ = ["from_dlpack", "is_supported_dtype"]
_bound_names(globals())
