"""Hooks of XLA: none, since no XLA runs the programs."""
__all__: list[str] = []
