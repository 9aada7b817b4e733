"""Files whose frames are no user's. A frame here is a user's wherever it is not shardtrace's."""
from __future__ import annotations

__all__ = ["register_exclusion"]
_EXCLUDED: list[str] = []


def register_exclusion(path: str) -> None:
    """Name a file of a library."""
    _EXCLUDED.append(path)
