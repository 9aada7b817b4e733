"""`numpy.maximum` and `minimum` of an array and a number, vectorised.

numpy vectorises these for two arrays, but takes five times as long if one operand is a number. So
the number is repeated for a row of the array.
"""
from __future__ import annotations

from typing import Any

import numpy as np

FEWEST = 1 << 14                # elements from which a row of the number pays
_ROW = 1 << 12                  # elements of such a row
_SHORTEST = 1 << 6              # elements of a row of an array that cannot be cut so


def _by_rows(ufunc: np.ufunc) -> Any:
    def function(x: Any, y: Any, out: np.ndarray | None = None) -> Any:
        if out is not None and out.size < FEWEST:       # at once: loops call it often
            return ufunc(x, y, out=out)
        first = getattr(x, "size", 0) == 1
        number, array = (x, y) if first else (y, x)
        if getattr(number, "size", 0) != 1 or getattr(array, "size", 0) < FEWEST or (
                number.ndim > array.ndim):
            return ufunc(x, y, out=out)
        flat, to = array, out
        if array.size % _ROW == 0 and array.flags.c_contiguous and (
                out is None or out.flags.c_contiguous):
            flat, to = array.reshape(-1, _ROW), None if out is None else out.reshape(-1, _ROW)
        n = flat.shape[-1]
        if n < _SHORTEST:
            return ufunc(x, y, out=out)
        row = np.empty(n, number.dtype)
        row.fill(number.item())
        found = ufunc(*((row, flat) if first else (flat, row)), out=to)
        return found.reshape(array.shape) if out is None else out
    function.__name__ = ufunc.__name__
    return function


maximum, minimum = _by_rows(np.maximum), _by_rows(np.minimum)
BY_ROWS = {np.maximum: maximum, np.minimum: minimum}
