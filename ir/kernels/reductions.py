"""Reductions of rows: sums as products with ones, and positions of the largest and smallest.

BLAS adds up a row in a third of numpy's time. `numpy.vecdot` calls BLAS for each row, so that a
row's sum does not depend on the rows next to it. Long rows are cut into parts whose sums numpy adds
up pairwise: no sum adds more than `LONGEST` numbers in sequence, and rounding errors stay what they
are with numpy's sum.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..support.caches import cached

SHORTEST = 32                   # elements of a row from which it pays
LONGEST = 4096                  # and in one piece
_PART_SIZES = (4096, 2048, 1024, 512, 256)


@cached(8)
def _ones(dtype: np.dtype) -> np.ndarray:
    """What a row's products are taken with."""
    ones = np.ones(LONGEST, dtype)
    ones.flags.writeable = False
    return ones


@cached(4096)
def row_adder(row: tuple[int, ...], dtype: np.dtype) -> Callable[..., Any] | None:
    """The function of arrays with these last dimensions that sums over them; None if numpy's does.

    It takes `out` as numpy's functions do. Arrays that do not lie row by row numpy adds up.

    >>> import numpy as np
    >>> from shardtrace.ir.kernels.reductions import row_adder
    >>> row_adder((64,), np.dtype(np.float32))(np.ones((2, 64), np.float32)).tolist()
    [64.0, 64.0]
    """
    count = math.prod(row)
    if dtype.char not in "fd" or count < SHORTEST:
        return None
    piece = count if count <= LONGEST else next((n for n in _PART_SIZES if not count % n), None)
    if piece is None:
        return None
    rank, pieces, size = len(row), count // piece, dtype.itemsize
    ones = _ones(dtype)[:piece]

    def lines(x: Any, out: Any = None) -> Any:
        if x.strides[-1] != size:
            return np.add.reduce(x, -1, dtype, out)
        return np.vecdot(x, ones, out)

    def merged(x: Any, out: Any = None) -> Any:
        if not x.flags.c_contiguous:
            return np.add.reduce(x, tuple(range(x.ndim - rank, x.ndim)), dtype, out)
        rows = x.shape[:x.ndim - rank]
        if pieces == 1:
            return np.vecdot(x.reshape((*rows, piece)), ones, out)
        return np.add.reduce(np.vecdot(x.reshape((*rows, pieces, piece)), ones), -1, dtype, out)

    return lines if rank == pieces == 1 else merged


def adder_of(axes: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype
             ) -> Callable[..., Any] | None:
    """What `row_adder` gives for a sum over these dimensions of arrays of this shape."""
    first = len(shape) - len(axes)
    if first < 0 or axes != tuple(range(first, len(shape))):
        return None
    return row_adder(shape[first:], dtype)


MOST = 1 << 12                  # elements along the dimension; of booleans FEW: numpy stops early
FEW = 16
WIDE = 1 << 10                  # elements of a row from which it pays to take whole rows
NARROW = 64                     # of them, those that are contiguous, at least


def first_position(x: np.ndarray, axis: int, extreme: np.ufunc) -> np.ndarray | None:
    """The first position of what `extreme` (maximum, minimum) gives along a dimension.

    By comparing one row after the other, which numpy does for many elements at a time. None where
    that does not pay, or there is a NaN.

    >>> import numpy as np
    >>> from shardtrace.ir.kernels.reductions import first_position
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
