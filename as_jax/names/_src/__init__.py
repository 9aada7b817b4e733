"""Private modules of JAX that libraries import, where a public one says the same.

`jax._src.X` has the names of `jax.X`, and those of the module here, if there is one.
"""
__all__: list[str] = []
