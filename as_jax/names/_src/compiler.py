"""Nothing is compiled for a device, so there is nothing to hook into."""
__all__: list[str] = []
