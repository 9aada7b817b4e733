"""Compiler hooks: none, since no program is compiled for a device."""
__all__: list[str] = []
