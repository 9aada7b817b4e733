"""What `jax.extend` has more of."""
__all__: list[str] = []
