"""`numpy.where` without a branch per element, on the bits of numbers.

numpy branches on each element of the condition, which the processor cannot predict: ten times as
long as an addition. Here the condition becomes an integer `ones` with all bits set or none, and the
result is y ^ ((x ^ y) & ones), which numpy vectorises; x & ones where y is zero.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...support.buffer_pool import empty

PIECE = 1 << 16                 # elements at a time
FEWEST = 1 << 13                # elements from which numpy's own takes longer
_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def selected(which: Any, x: Any, y: Any) -> Any:
    """x where `which` is true, else y; these are of one dtype."""
    integer = _INTEGERS.get(x.dtype.itemsize)
    if type(which) is not np.ndarray or which.size < FEWEST or integer is None or x.dtype.names:
        return np.where(which, x, y)
    out = empty(np.broadcast_shapes(which.shape, x.shape, y.shape), x.dtype)
    _select(which, x.view(integer), y.view(integer), out.view(integer))
    return out


def has_bits(dtype: np.dtype) -> bool:
    """Are there integers of the width of such numbers?"""
    return dtype.itemsize in _INTEGERS and not dtype.names


def by_bits(which: Any, x: Any, y: Any) -> Any:
    """`selected` as calls of numpy alone, for arrays that stay in the cache."""
    integer = _INTEGERS[x.dtype.itemsize]
    ones = np.negative(which.view(np.int8)).astype(integer)
    other = y.view(integer)
    found = np.bitwise_xor(np.bitwise_and(np.bitwise_xor(x.view(integer), other), ones), other)
    return found.view(x.dtype)


def or_zero(which: Any, x: Any, y: Any) -> Any:
    """x where `which` is true, else zero, which y is known to be."""
    return _masked(np.negative(which.view(np.int8)), x)


def zero_or(which: Any, x: Any, y: Any) -> Any:
    """y where `which` is false, else zero, which x is known to be."""
    return _masked(np.subtract(which.view(np.int8), np.int8(1)), y)


def _masked(ones: Any, x: Any) -> Any:
    bits = x.view(_INTEGERS[x.dtype.itemsize])
    return np.bitwise_and(bits, ones.astype(bits.dtype)).view(x.dtype)


def is_zero(x: Any) -> bool:
    """Is it a number all of whose bits are zero?"""
    x = np.asarray(x)
    return x.size == 1 and not any(x.tobytes())


def _select(which: np.ndarray, x: Any, y: Any, out: np.ndarray) -> None:
    """Write `selected` of bits to out, piece by piece so that each stays in the cache."""
    if out.size > PIECE and len(out) > 1:
        step = max(1, len(out) * PIECE // out.size)
        for i in range(0, len(out), step):
            w, a, b = (v if v.ndim < out.ndim or len(v) == 1 else v[i:i + step]
                       for v in (which, x, y))
            _select(w, a, b, out[i:i + step])
        return
    # What is repeated of a condition is looked at once.
    which = which[tuple([slice(0, 1) if n == 0 else slice(None) for n in which.strides])]
    ones = np.negative(which.view(np.int8)).astype(out.dtype)
    if is_zero(y):
        np.bitwise_and(x, ones, out=out)
        return
    np.bitwise_xor(x, y, out=out)
    out &= ones
    out ^= y
