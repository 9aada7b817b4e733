"""The optimizers and the layers that JAX has for its examples."""
__all__: list[str] = []
