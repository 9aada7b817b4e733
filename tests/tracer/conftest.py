"""Tests here share `examplewise.py`, the loop that vmap is compared with; it lies beside them."""
from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
