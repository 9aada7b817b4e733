"""Sorting: the total order of floats, stable argsort, the k largest elements.

The total order of floats is that of their bits: -NaN < -inf < ... < -0.0 < 0.0 < ... < inf < NaN.

`stable_order` equals `numpy.argsort(kind="stable")`, and is several times as fast. numpy counts
keys of 16 bits (a radix sort) instead of comparing them; longer keys are sorted by their lowest 16
bits, then by the next ones. Of short rows, numpy sorts 64-bit numbers with vector instructions when
the sort need not be stable, and a number with a key of 32 bits in its upper half and the position
in its lower half has no equals.
"""
from __future__ import annotations

import math

import numpy as np

from ..support.buffer_pool import empty


def total_order_key(x: np.ndarray) -> np.ndarray:
    """Integers that compare as the floats of x do in the total order; other dtypes unchanged."""
    if x.dtype.kind != "f":
        return x
    return ordered_bits(x.view(f"i{x.dtype.itemsize}"))


def ordered_bits(bits: np.ndarray) -> np.ndarray:
    """Integers that compare as the floats of which these are the bits do in the total order; of
    such integers, the bits."""
    key = np.asarray(bits >> (8 * bits.dtype.itemsize - 1))     # all ones where the sign is set
    key &= np.iinfo(bits.dtype).max
    key ^= bits
    return key


PACKED = 1 << 10        # elements from which it pays to pack keys
LONG = 1 << 11          # elements of a row from which it pays to sort by 16 bits at a time
LOW = 0xFFFFFFFF        # of a packed number, its position


def stable_order(x: np.ndarray, axis: int) -> np.ndarray:
    """Positions along `axis` by which x ascends; equal elements, zeros of both signs and NaNs among
    them, stay in order, and NaNs come last.

    x: real numbers of any dtype. Gives positions of dtype intp, in the shape of x.

    >>> stable_order(np.array([2, 1, 2, 1], np.float32), 0)
    array([1, 3, 0, 2])
    """
    size = x.dtype.itemsize
    by_digits = x.shape[axis] >= LONG and size in (4, 8)
    if x.size < PACKED or size > 4 and not by_digits or (size < 4 and x.dtype.kind in "iub"):
        return np.argsort(x, axis=axis, kind="stable")
    key = _ascending(x)
    if size < 4:
        return np.argsort(key, axis=axis, kind="stable")
    if by_digits:
        return _by_digits(key, axis)
    found = packed(key, np.arange(x.shape[axis]), axis)
    found.sort(axis=axis)
    found &= LOW
    return found.astype(np.intp, copy=False)


def _by_digits(keys: np.ndarray, axis: int) -> np.ndarray:
    """The stable order along `axis` of integers of 32 or 64 bits, by 16 bits at a time."""
    rows = np.ascontiguousarray(np.moveaxis(keys, axis, -1))
    order = empty(rows.shape, np.dtype(np.intp))
    bits = np.dtype(f"u{rows.itemsize}")
    rows = rows.view(bits) ^ bits.type(0 if keys.dtype.kind == "u" else 1 << 8 * bits.itemsize - 1)
    for row, out in zip(rows.reshape(-1, rows.shape[-1]), order.reshape(-1, rows.shape[-1]),
                        strict=True):
        found = np.argsort(row.astype(np.uint16), kind="stable")
        for shift in range(16, 8 * bits.itemsize, 16):
            digits = (row >> bits.type(shift)).astype(np.uint16)
            if digits.min() < digits.max():
                found = found.take(np.argsort(digits.take(found), kind="stable"))
        out[:] = found
    return np.moveaxis(order, -1, axis)


def packed(keys: np.ndarray, positions: np.ndarray, axis: int | None) -> np.ndarray:
    """Integers of 64 bits that compare as `keys`, integers of at most 32, and equal ones as the
    positions along `axis`, which are the lower half (`& LOW`). None: positions of all elements."""
    found = empty(keys.shape, np.dtype(np.int64))
    found[...] = keys
    if keys.dtype.kind == "u":
        found -= 1 << 31
    found <<= 32
    found |= positions if axis is None else positions.reshape(
        [-1 if d == axis else 1 for d in range(keys.ndim)])
    return found


def taken(x: np.ndarray, order: np.ndarray, axis: int) -> np.ndarray:
    """`numpy.take_along_axis`; along the last dimension in less time."""
    if axis != x.ndim - 1 or not x.size:
        return np.take_along_axis(x, order, axis=axis)
    count = x.shape[axis]
    rows = np.arange(0, x.size, count).reshape((*x.shape[:-1], 1))
    return x.reshape(-1).take(order + rows)


def _ascending(x: np.ndarray) -> np.ndarray:
    """Integers that compare as x does, with one for both zeros and one for all NaNs."""
    if x.dtype.kind in "iu":
        return x
    key = ordered_bits(x.view(f"i{x.dtype.itemsize}"))
    for same, value in ((x == 0, 0), (np.isnan(x), np.iinfo(key.dtype).max)):
        if same.any():
            key[same] = value
    return key


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


def largest_values(x: np.ndarray, k: int, axis: int) -> np.ndarray:
    """The k largest elements in descending order. Takes a third to two thirds of `largest`'s time.

    >>> largest_values(np.array([[1, 3, 2, 3]], np.float32), 3, 1).tolist()
    [[3.0, 3.0, 2.0]]
    """
    keys, n = total_order_key(x), x.shape[axis]
    if 0 < k < n:
        keys = np.partition(keys, n - k, axis)
    keys = np.sort(keys.take(range(n - k, n), axis), axis)
    found = np.flip(keys, axis)
    return ordered_bits(found).view(x.dtype) if x.dtype.kind == "f" else found


def _order(x: np.ndarray, k: int, axis: int) -> np.ndarray:
    """The positions of the k largest along an axis, in order; of equal elements the first."""
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
    """Positions of the k largest integers, which are of at most 32 bits.

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
    """Along the last dimension, by which elements are not less than the kth; None if ties make them
    more than k.
    """
    n = keys.shape[-1]
    least = np.partition(keys, n - k, axis=-1)[..., n - k, None]
    places = np.flatnonzero(keys >= least)
    if places.size != math.prod(keys.shape[:-1]) * k:
        return None
    places = places.reshape(*keys.shape[:-1], k)
    found = packed(keys.reshape(-1)[places], n - 1 - places % n, None)
    found.sort(axis=-1)
    return n - 1 - (np.flip(found, -1) & LOW)
