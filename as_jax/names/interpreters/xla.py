"""Registries of XLA: accepted, but never read, since no XLA runs the programs."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["canonicalize_dtype_handlers"]
canonicalize_dtype_handlers: dict[type, Callable[..., Any]] = {np.ndarray: np.asarray}
