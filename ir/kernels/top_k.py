"""Where the k largest elements along a dimension are, the first of equal ones before the others."""
from __future__ import annotations

import math

import numpy as np

from ..support.buffer_pool import empty
from .stable_order import LOW, packed, taken
from .total_order import total_order_key

SHORT = 64                  # elements along the dimension, all of which are soon sorted
BLOCK = 1 << 15             # elements at a time: what is computed of them stays in the cache


def largest(x: np.ndarray, k: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest elements in descending order, and their positions.

    Floats compare in their total order (comparison.py).

    >>> largest(np.array([[1, 3, 2, 3]], np.float32), 3, 1)[1].tolist()
    [[1, 3, 2]]
    """
    rows = x.shape[0]
    if axis == 0 or x.size < 2 * BLOCK or rows < 2:
        order = _order(x, k, axis)
        return taken(x, order, axis), order
    shape = (*x.shape[:axis], k, *x.shape[axis + 1:])
    values, places = empty(shape, x.dtype), empty(shape, np.dtype(np.int32))
    step = max(1, BLOCK * rows // x.size)
    for i in range(0, rows, step):
        part = x[i:i + step]
        order = places[i:i + step] = _order(part, k, axis)
        values[i:i + step] = taken(part, order, axis)
    return values, places


def _order(x: np.ndarray, k: int, axis: int) -> np.ndarray:
    n = x.shape[axis]
    if k == 1 and x.dtype.kind == "f":
        order = np.argmax(x, axis, keepdims=True)
        best = taken(x, order, axis)
        if np.logical_and(best == best, best != 0).all():       # else zeros or NaNs have an order
            return order
    keys = total_order_key(x)
    if keys.dtype.kind in "iub" and keys.dtype.itemsize <= 4 and 0 < k <= n < 2 ** 31:
        return _order_of_short(keys, k, axis)
    # A stable ascending sort of the reversed array, read from the end: equal ones in order.
    ascending = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    return n - 1 - np.flip(ascending, axis).take(range(k), axis)


def _order_of_short(keys: np.ndarray, k: int, axis: int) -> np.ndarray:
    """Of integers of at most 32 bits.

    A number of 64 bits that has the key above and the position below, counted from the end, has no
    equals, and the larger of two comes first.
    """
    n = keys.shape[axis]
    if k == 1:
        return np.argmax(keys, axis, keepdims=True)
    if SHORT < n > k:
        order = _by_threshold(np.moveaxis(keys, axis, -1), k)
        if order is not None:
            return np.moveaxis(order, -1, axis)
    found = packed(keys, np.arange(n - 1, -1, -1), axis)
    if SHORT < n > k:
        found.partition(n - k, axis=axis)
        found = found.take(range(n - k, n), axis)
    found.sort(axis=axis)
    return n - 1 - (np.flip(found, axis).take(range(k), axis) & LOW)


def _by_threshold(keys: np.ndarray, k: int) -> np.ndarray | None:
    """Along the last dimension, by what is not less than the kth; None if that is too much."""
    n = keys.shape[-1]
    least = np.partition(keys, n - k, axis=-1)[..., n - k, None]
    places = np.flatnonzero(keys >= least)
    if places.size != math.prod(keys.shape[:-1]) * k:
        return None
    places = places.reshape(*keys.shape[:-1], k)
    found = packed(keys.reshape(-1)[places], n - 1 - places % n, None)
    found.sort(axis=-1)
    return n - 1 - (np.flip(found, -1) & LOW)
