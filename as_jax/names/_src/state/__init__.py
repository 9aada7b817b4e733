"""Mutable references."""
__all__: list[str] = []
