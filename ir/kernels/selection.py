"""`numpy.where` without a branch for each element, on the bits of numbers.

numpy copies one element after the other, as a condition says that no processor can foresee: ten
times as long as to add it. Here a condition is an integer of ones or zeros, x where it is ones is
y ^ ((x ^ y) & ones), and numpy does each of these on many elements at once.
"""
from __future__ import annotations

from typing import Any

import numpy as np

FEWEST = 1 << 13                # elements from which numpy's own takes longer
_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def selected(which: Any, x: Any, y: Any) -> Any:
    """x where `which` is true, else y; these are of one dtype."""
    integer = _INTEGERS.get(x.dtype.itemsize)
    if type(which) is not np.ndarray or which.size < FEWEST or integer is None or x.dtype.names:
        return np.where(which, x, y)
    other = y.view(integer)
    found = np.bitwise_xor(x.view(integer), other)
    if which.shape == found.shape:          # what is repeated is looked at once
        which = which[tuple([slice(0, 1) if n == 0 else slice(None) for n in which.strides])]
    ones = which.view(np.int8).astype(integer)
    np.negative(ones, out=ones)
    whole = np.broadcast_shapes(ones.shape, found.shape)
    found = np.bitwise_and(found, ones, out=next(
        (memory for memory in (found, ones) if memory.shape == whole and memory.ndim), None))
    return np.bitwise_xor(found, other, out=found).view(x.dtype)
