"""Where along a dimension the largest or smallest elements are, row by row of that dimension."""
from __future__ import annotations

import math

import numpy as np

MOST = 1 << 12                  # elements along the dimension; of booleans FEW: numpy stops early
FEW = 16
WIDE = 1 << 10                  # elements of a row from which it pays to take whole rows
NARROW = 64                     # of them, those that lie one behind the other at the least


def first_position(x: np.ndarray, axis: int, extreme: np.ufunc) -> np.ndarray | None:
    """The first position of what `extreme` (maximum, minimum) gives along a dimension.

    By comparing one row after the other, which numpy does for many elements at a time. None where
    that does not pay, or there is a NaN.

    >>> import numpy as np
    >>> from shardtrace.ir.ops.positions import first_position
    >>> x = np.arange(4096).reshape(2, 2048) % 3
    >>> first_position(x, 0, np.maximum)[:4].tolist()
    [1, 0, 0, 1]
    """
    count = x.shape[axis]
    if (count > (FEW if x.dtype.kind == "b" else MOST) or x.dtype.kind not in "fiub"
            or x.dtype.isbuiltin != 1 or math.prod(x.shape[axis + 1:]) < NARROW
            or x.size < WIDE * count):
        return None
    best = extreme.reduce(x, axis=axis)
    if x.dtype.kind == "f" and np.isnan(best).any():
        return None
    found = np.zeros(best.shape, np.int8 if count <= 128 else np.int16)
    before = np.ones(best.shape, np.bool_)
    other = np.empty(best.shape, np.bool_)
    front = (slice(None),) * axis
    for i in range(count - 1):
        np.not_equal(x[(*front, i)], best, out=other)
        np.logical_and(before, other, out=before)
        np.add(found, before.view(np.int8), out=found)
    return found
