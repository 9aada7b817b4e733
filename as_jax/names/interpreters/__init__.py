"""Registries in which libraries enter the rules of their own primitives, by JAX's interpreter."""
__all__: list[str] = []
