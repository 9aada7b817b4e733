"""Notes on padding in the reasons of equations: written by one pass, read back by later ones.

An equation that pads says to what size; one that masks, cuts or moves padding says how many rows
are real. Later passes and reports parse these notes.
"""
from __future__ import annotations

from ..ir.support.lazy import lazy_pattern

_PADDED = lazy_pattern(r"dimension (\d+) of `[^`]*` has (\d+) rows, padded to (\d+)")
_COUNT = lazy_pattern(r"(\d+) of (\d+) rows of dimension \d+ count")


def padded_to(d: int, op: str, n: int, size: int) -> str:
    """The reason of an equation that pads."""
    return f"dimension {d} of `{op}` has {n} rows, padded to {size}"


def rows_count(n: int, size: int, d: int) -> str:
    """The reason, or part of it, of an equation that masks, cuts or moves padding."""
    return f"{n} of {size} rows of dimension {d} count"


def paddings(reason: str) -> list[tuple[int, int, int]]:
    """(dimension, real rows, rows with padding), read from a reason."""
    return [(int(d), int(n), int(size)) for d, n, size in _PADDED.findall(reason)]


def padded_share(reason: str) -> float:
    """The share of what an exchange with this reason moves that is padding."""
    part = 1.0
    for n, size in dict.fromkeys(_COUNT.findall(reason)):
        part *= int(n) / int(size)
    return 1 - part
