"""Arrays that are equal, found so fast: numpy's assertions take a tenth of a millisecond each."""
from __future__ import annotations

import numpy as np


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Have they one shape and dtype, and every bit? Where not, they may still be equal or close."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
