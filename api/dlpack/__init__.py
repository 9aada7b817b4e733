"""Arrays from and to other libraries by the DLPack protocol, as in `jax.dlpack`."""
from shardtrace.runtime.arrays.exchange import from_dlpack, is_supported_dtype

__all__ = ["from_dlpack", "is_supported_dtype"]
