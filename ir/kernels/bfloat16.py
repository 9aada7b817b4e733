"""float32 rounded to bfloat16's numbers, as few numpy calls on whole arrays.

bfloat16 is the upper half of a float32, so to round is to add to its bits. A NaN stays one if the
lower half of its bits is zero, as what is computed of bfloat16 has it.
"""
from __future__ import annotations

import numpy as np

from ..dtypes.table import BF16

_I32 = np.int32
_HALF, _ONE, _ROUND, _UPPER = _I32(16), _I32(1), _I32(0x7FFF), _I32(-1 << 16)


def rounded(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """To nearest, ties to even. out: may be `x`."""
    bits = x.view(_I32)
    added = bits >> _HALF
    added &= _ONE
    added += _ROUND
    added += bits
    return np.bitwise_and(added, _UPPER, out=added if out is None else out.view(_I32)
                          ).view(np.float32)


def packed(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """bfloat16 of float32, rounded."""
    if out is None:
        return x.astype(BF16)
    np.copyto(out, x, casting="unsafe")
    return out


def renewed(x: np.ndarray) -> np.ndarray:
    """The same of any float32."""
    return x.astype(BF16).astype(np.float32)
