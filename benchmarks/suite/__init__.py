"""The programs whose speed is measured, and how: library.py says what a program is."""
from __future__ import annotations

from . import collective, dispatch, elementwise, loops, mlp, models, numeric, transformer
from .library import PROGRAMS, Program

FAMILIES = (elementwise, mlp, transformer, loops, collective, dispatch, numeric, models)


def names() -> dict[str, Program]:
    """All programs, by name."""
    return {p.name: p for p in PROGRAMS}
