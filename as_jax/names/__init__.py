"""What programs of JAX ask `jax` for, and shardtrace has under other names or has no use for.

The modules beside this one are those of JAX; each lists in `__all__` what `jax.MODULE` has of it.
What libraries only register something with keeps what it is given, and nothing reads it.
"""
from .version import __version__, __version_info__

__all__ = ["__version__", "__version_info__"]
