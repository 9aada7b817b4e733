"""Base classes for the dtypes that a library defines."""
from __future__ import annotations

import numpy as np

__all__ = ["DType", "ExtendedDType", "supports_inf"]
DType = np.dtype


class ExtendedDType:
    """The base of such dtypes. Arrays have dtypes of numpy, of ml_dtypes, or of random keys."""


def supports_inf(dtype: np.dtype) -> bool:
    """Has a dtype of floats infinities?"""
    return bool(np.isinf(np.asarray(np.inf, dtype)))
