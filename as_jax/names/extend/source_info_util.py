"""Files that libraries exclude from tracebacks. Here all frames outside shardtrace are shown."""
from __future__ import annotations

__all__ = ["register_exclusion"]
_EXCLUDED: list[str] = []


def register_exclusion(path: str) -> None:
    """Name a file of a library."""
    _EXCLUDED.append(path)
