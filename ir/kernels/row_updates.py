"""Scatter of rows: rows of updates overwrite the rows of an array, or are combined with them."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..support.lazy import lazy_import

sparse = lazy_import("scipy.sparse")

PIECE = 1 << 18         # bytes of rows that are added at once
ROUNDS = 8              # updates of one place that are added one by one
WIDE = 32               # elements of a row from which rows are added as such
FEW = 1 << 14           # elements up to which they are added one by one


def write_rows(rows: np.ndarray, at: np.ndarray, updates: np.ndarray) -> None:
    """Write each row of updates where it belongs; of equal places the last one."""
    if len(rows) == 1 == len(at):
        rows[...] = updates
    else:
        rows[at] = updates


def _summed(at: np.ndarray, count: int, updates: np.ndarray) -> np.ndarray:
    """[count, width] sums of the rows of updates that go to the same place.

    By a product with a sparse 0/1 matrix.
    """
    ones = np.ones(len(at), updates.dtype)
    pick = sparse.csc_matrix((ones, at, np.arange(len(at) + 1)), shape=(count, len(at)))
    return pick @ updates


def _add_rows(rows: np.ndarray, at: np.ndarray, updates: np.ndarray) -> None:
    """Add each row of updates to the row of `rows` where it belongs, in their order.

    In rounds: of each place the first update, then of each that has one the second, ...
    """
    order = np.argsort(at, kind="stable")
    at = at[order]
    starts = np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1])))
    counts = np.diff(starts, append=len(at))
    step = max(1, PIECE // (rows.shape[1] * rows.itemsize))
    for done in range(ROUNDS):
        for i in range(0, len(starts), step):
            some = starts[i:i + step]
            rows[at[some]] += updates[order[some + done]]
        left = counts > done + 1
        starts, counts = starts[left], counts[left]
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        rows[at[start]] += np.add.reduce(updates[order[start + ROUNDS:start + count]], axis=0,
                                         dtype=rows.dtype)


def accumulate_rows(ufunc: np.ufunc) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
    """The function that combines rows of updates with the rows where they belong."""
    def accumulate(rows: np.ndarray, at: np.ndarray, updates: np.ndarray) -> None:
        width = rows.shape[1]
        if not updates.size:
            return
        if len(rows) == 1 == len(at):
            ufunc(rows, updates, out=rows)
            return
        if ufunc is np.add and width > 1 and updates.size > FEW and rows.dtype != np.bool_:
            # Each is an order of magnitude quicker than add.at.
            if len(at) >= len(rows):
                rows += _summed(at, len(rows), updates)
                return
            if width >= WIDE:
                _add_rows(rows, at, updates)
                return
            touched = np.zeros(len(rows), bool)      # of many rows few: the others stay unread
            touched[at] = True
            own = np.flatnonzero(touched)
            rows[own] += _summed((np.cumsum(touched) - 1)[at], len(own), updates)
            return
        flat = rows.reshape(-1)
        if width > 1:
            at = (at[:, None] * width + np.arange(width)).reshape(-1)
        ufunc.at(flat, at, updates.reshape(-1))
    return accumulate


def combine_few(combine: Callable[[np.ndarray, np.ndarray, np.ndarray], None], out: np.ndarray,
                sizes: tuple[int, ...], positions: np.ndarray, values: np.ndarray) -> None:
    """Change few of the rows of an array whose rows are not contiguous: their copies,
    which are put back. sizes: of the dimensions that `positions` count rows in."""
    touched, at = np.unique(positions, return_inverse=True)
    index = np.unravel_index(touched, sizes)
    taken = out[index]
    rows = np.ascontiguousarray(taken).reshape(len(touched), values.shape[1])
    combine(rows, at.reshape(-1), values)
    out[index] = rows.reshape(taken.shape)
