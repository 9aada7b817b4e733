"""The total order of floats: integers that compare as the bits of floats do.

-NaN < -inf < ... < -0.0 < 0.0 < ... < inf < NaN.
"""
from __future__ import annotations

import numpy as np


def total_order_key(x: np.ndarray) -> np.ndarray:
    """Integers that compare as the floats of x do in the total order; other dtypes unchanged."""
    if x.dtype.kind != "f":
        return x
    return ordered_bits(x.view(f"i{x.dtype.itemsize}"))


def ordered_bits(bits: np.ndarray) -> np.ndarray:
    """Integers that compare as the floats of which these are the bits do in the total order."""
    key = np.asarray(bits >> (8 * bits.dtype.itemsize - 1))     # all ones where the sign is set
    key &= np.iinfo(bits.dtype).max
    key ^= bits
    return key
