"""The programs whose plans benchmarks/collectives.py measures: what each moves, and the least that
is known.
"""
from __future__ import annotations

from . import control, layers, methods, models, uneven
from .programs import CASES, Case

__all__ = ["CASES", "Case"]

assert control and layers and methods and models and uneven     # importing them adds their programs
