"""What programs of JAX ask `jax` for, and shardtrace has under other names or has no use for.

The modules beside this one are those of JAX; each lists in `__all__` what `jax.MODULE` has of it.
"""
__version__ = "0.10.2"      # the release that shardtrace follows
__version_info__ = (0, 10, 2)

__all__ = ["__version__", "__version_info__"]
