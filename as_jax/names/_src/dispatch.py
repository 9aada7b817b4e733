"""Nothing runs in the background, so there is nothing to wait for."""
__all__: list[str] = []
