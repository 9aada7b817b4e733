"""Names that programs import from `jax` and that shardtrace has elsewhere, or has no use for.

The modules here are named after JAX's; `__all__` of each lists the names that it adds to
`jax.MODULE`. Registries that libraries write to accept every entry, and nothing reads them.
"""
from .version import __version__, __version_info__

__all__ = ["__version__", "__version_info__"]
