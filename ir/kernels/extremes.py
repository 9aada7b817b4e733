"""`numpy.maximum` and `minimum` of an array and a number.

numpy compares many elements at once where both operands lie in memory, and one after the other,
five times as long, where one of them is a number. So the number is repeated for a row of the array.
"""
from __future__ import annotations

from typing import Any

import numpy as np

FEWEST = 1 << 12                # elements from which a row of the number pays
_SHORTEST = 1 << 6              # elements of such a row


def _by_rows(ufunc: np.ufunc) -> Any:
    def function(x: Any, y: Any, out: np.ndarray | None = None) -> Any:
        if getattr(y, "size", 0) == 1:
            y = _row(y, x)
        elif getattr(x, "size", 0) == 1:
            x = _row(x, y)
        return ufunc(x, y, out=out)
    function.__name__ = ufunc.__name__
    return function


def _row(number: Any, beside: Any) -> Any:
    """The number as long as the last dimension, or as it is."""
    if beside.size < FEWEST or beside.shape[-1] < _SHORTEST or number.ndim > beside.ndim:
        return number
    row = np.empty(beside.shape[-1], number.dtype)
    row.fill(number.item())
    return row


maximum, minimum = _by_rows(np.maximum), _by_rows(np.minimum)
BY_ROWS = {np.maximum: maximum, np.minimum: minimum}
