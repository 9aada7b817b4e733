"""Dispatch hooks: none, since nothing runs in the background."""
__all__: list[str] = []
