"""Hooks of XLA, of which there is none below."""
__all__: list[str] = []
