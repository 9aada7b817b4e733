"""Programs and how their speed is measured: library.py says what a program is."""
from __future__ import annotations

from .library import PROGRAMS, Program
from .programs import FAMILIES

assert FAMILIES             # importing them enters their programs


def names() -> dict[str, Program]:
    """All programs, by name."""
    return {p.name: p for p in PROGRAMS}
