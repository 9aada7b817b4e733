"""What libraries say about primitives of their own, to the interpreters of JAX."""
__all__: list[str] = []
