"""Window functions of signal processing: bartlett, blackman, hamming, hanning, kaiser."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ... import lax
from ...operands.dtype_promotion import check_arraylike
from ...operands.scalars import float_default
from ...staging.constants import as_array
from ..elementwise.arithmetic import cos, i0, sqrt
from ..elementwise.two_operands import subtract_function

__all__ = ["bartlett", "blackman", "hamming", "hanning", "kaiser"]


def _places(M: Any) -> tuple[int, Any]:
    m = operator.index(M)
    dtype = float_default()
    if m <= 1:
        return m, lax.full((max(m, 0),), 1, dtype)
    return m, lax.iota(dtype, m)


def bartlett(M):
    """Bartlett's window of M elements: a triangle from 0 up to 1 and down to 0 again."""
    m, n = _places(M)
    return n if m <= 1 else subtract_function(1, abs(2 * n + 1 - m) / (m - 1))


def blackman(M):
    """Blackman's window of M elements: a sum of three cosines, nearly 0 at both ends."""
    m, n = _places(M)
    if m <= 1:
        return n
    return 0.42 - 0.5 * cos(2 * np.pi * n / (m - 1)) + 0.08 * cos(4 * np.pi * n / (m - 1))


def hamming(M):
    """Hamming's window of M elements: a raised cosine that is 0.08 at both ends."""
    m, n = _places(M)
    return n if m <= 1 else 0.54 - 0.46 * cos(2 * np.pi * n / (m - 1))


def hanning(M):
    """Hann's window of M elements: a raised cosine that is 0 at both ends."""
    m, n = _places(M)
    return n if m <= 1 else 0.5 * (1 - cos(2 * np.pi * n / (m - 1)))


def kaiser(M, beta):
    """Kaiser's window of M elements; the greater `beta`, the narrower and smoother it is."""
    check_arraylike("kaiser", beta)
    m, n = _places(M)
    if m <= 1:
        return n
    alpha = 0.5 * (m - 1)
    return i0(beta * sqrt(1 - ((n - alpha) / alpha) ** 2)) / i0(as_array(beta))


