"""Tests here share `lockstep.py`, a tiny interpreter of programs; it lies beside them."""
from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
