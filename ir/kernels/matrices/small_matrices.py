"""Stacks of many small matrices [count, m, n], column by column for all at once.

LAPACK and BLAS take one matrix at a time, and calling them takes longer than the arithmetic of a
small one. Here the stack is the last dimension, along which numpy vectorises, in batches that fit
in the cache. An element is what is left of it when the products of those found before are
subtracted (Crout's order, not Gauss's, which writes the rest of a matrix after each column): the
products are summed by one einsum without an array of each.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

LARGEST = 32                    # rows and columns from which LAPACK is faster,
BYTES = 1 << 10                 # and bytes of a matrix of results, called from Python for each
TINY, LOOPED = BYTES // 4, 128  # the same if numpy calls it, and of how many for each row
FACTORED = 24                   # the same of how many it is for each row if all are factored
PIECE = 1 << 17                 # elements at a time
TURNED = 1 << 15                # bytes that are transposed at a time: what a first cache holds
FACTOR = 3                      # rows and columns up to which a product is faster so than in BLAS,
FACTORS = 1 << 10               # if it has so many pairs of factors


def is_small(*stacks: np.ndarray) -> bool:
    """Are these stacks of so many, and so small matrices, that it pays?"""
    count, size = len(stacks[0]), max(max(x.shape[1:]) for x in stacks)
    return (0 < size <= LARGEST and 2 * size <= count and all(x.size for x in stacks)
            and stacks[-1][0].nbytes <= BYTES)


def is_tiny(a: np.ndarray) -> bool:
    """Does that pay for a function that numpy has, which calls LAPACK for a whole stack?"""
    return is_small(a) and a[0].nbytes <= TINY and len(a) >= LOOPED * a.shape[-1]


def is_factored(a: np.ndarray) -> bool:
    """Does `lu` pay for a stack?"""
    return is_small(a) and len(a) >= FACTORED * a.shape[-1]


def is_solved(a: np.ndarray, b: np.ndarray) -> bool:
    """Does `triangular_solve` pay for these stacks?"""
    return is_small(a, b) and a[0].nbytes <= 2 * BYTES


def are_factors(left: tuple[int, ...], right: tuple[int, ...], dtype: np.dtype) -> bool:
    """Does `product` pay for stacks of matrices of these shapes?"""
    return (0 < max(*left[-2:], *right[-2:]) <= FACTOR and math.prod(left[:-2]) >= FACTORS
            and dtype.kind in "fc" and dtype.itemsize >= 4)


def _batches(a: np.ndarray, most: int = PIECE) -> Iterator[slice]:
    count, rows, columns = a.shape
    step = max(1, most // (rows * columns))
    return (slice(i, i + step) for i in range(0, count, step))


def _stack_last(a: np.ndarray, read: bool = False) -> np.ndarray:
    """The matrices with the stack last, in rows that are a little longer: of 4,096 bytes, all would
    be in the same few lines of the cache. read: only, so that what lies so already will do."""
    if read and a.strides[0] == a.itemsize:
        return a.transpose(1, 2, 0)
    count, rows, columns = a.shape
    out = np.empty((rows, columns, count | 16), a.dtype)[..., :count]
    for part in _batches(a, TURNED // a.itemsize):
        np.copyto(out[..., part], a[part].transpose(1, 2, 0))
    return out


def product(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """`numpy.matmul` of stacks, which may have several dimensions."""
    if out is None:
        out = np.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    left, right, results = (x.reshape(-1, *x.shape[-2:]) for x in (a, b, out))
    for part in _batches(max(left, right, results, key=np.size), PIECE // 2):
        x, y = _stack_last(left[part]), _stack_last(right[part])
        total = x[:, 0, None] * y[0]
        for i in range(1, len(y)):
            total += x[:, i, None] * y[i]
        results[part] = total.transpose(2, 0, 1)
    return out


def lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and U in one, and the row that each was exchanged with, as LAPACK's getrf gives them."""
    pivots = np.empty((len(a), min(a.shape[1:])), np.int32)
    packed = np.empty((*a.shape[1:], len(a) | 16), a.dtype)[..., :len(a)].transpose(2, 0, 1)
    for part in _batches(a):
        x = _stack_last(a[part])
        whole: Any = x.base
        flat, size = whole.reshape(-1), whole[0].size
        row = np.arange(size).reshape(whole[0].shape)[:, :x.shape[2]]
        for i in range(pivots.shape[1]):
            column = x[i:, i]
            column -= np.einsum("rjn,jn->rn", x[i:, :i], x[:i, i])
            length = np.abs(np.real(column)) + np.abs(np.imag(column)) if (
                a.dtype.kind == "c") else np.abs(column)
            p = length.argmax(0) + i
            pivots[part, i] = p
            moved: Any = np.flatnonzero(p != i)
            if 2 * len(moved) > len(p):
                moved = slice(None)
            at = p[moved] * size + row[:, moved]        # by numbers of elements: in a third
            exchanged = flat.take(at)
            flat[at] = x[i][:, moved]
            x[i][:, moved] = exchanged
            x[i, i + 1:] -= np.einsum("jn,jcn->cn", x[i, :i], x[:i, i + 1:])
            x[i + 1:, i] /= np.where(x[i, i] == 0, x.dtype.type(1), x[i, i])    # it is singular
        packed[part] = x.transpose(2, 0, 1)
    return packed, pivots


def triangular_solve(a: np.ndarray, b: np.ndarray, lower: bool, unit_diagonal: bool) -> np.ndarray:
    """The solutions of a x = b, of which the upper or the lower triangle of `a` is read."""
    out = np.empty_like(b, order="C")
    for part in _batches(a if a.size >= b.size else b):
        t, x = _stack_last(a[part], True), _stack_last(b[part])
        for i in range(a.shape[1]) if lower else reversed(range(a.shape[1])):
            found = slice(i) if lower else slice(i + 1, None)
            x[i] -= np.einsum("jn,jkn->kn", t[i, found], x[found])
            if not unit_diagonal:
                x[i] /= t[i, i]
        out[part] = x.transpose(2, 0, 1)
    return out


def cholesky(a: np.ndarray) -> np.ndarray:
    """Lower factors, reading the lower triangles of `a`; NaN where the matrix has none."""
    out = np.empty_like(a, order="C")
    for part in _batches(a):
        x = _stack_last(a[part])
        for i in range(len(x)):
            pivot, column = x[i, i].real, x[i:, i]
            column -= np.einsum("rjn,jn->rn", x[i:, :i], x[i, :i].conj())
            column /= np.sqrt(np.where(pivot > 0, pivot, np.nan))
            x[i, i + 1:] = 0
        x[:, :, np.isnan(x[-1, -1])] = np.nan           # as all pivots after one that is none
        out[part] = x.transpose(2, 0, 1)
    return out
