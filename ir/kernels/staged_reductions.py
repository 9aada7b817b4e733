"""Sums and extremes of narrow arrays, in stages at which numpy is fast.

numpy calls its inner loop once for each row: with rows of 3 elements, an element takes 25 times as
long as with long ones, whether the rows are reduced or added to each other. So dimensions that are
not adjacent are reduced one after the other. Short rows are combined column by column, in numpy's
order, so that the bits of a row do not depend on its neighbours. Narrow rows that are added up are
first grouped into long ones.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..support.buffer_pool import empty
from ..support.caches import cached
from .reductions import SHORTEST, adder_of, row_adder

FEWEST = 1 << 12                # elements from which numpy's own takes longer
MANY = 1 << 10                  # elements of a column from which it is worth a call
NARROW = 1 << 8                 # elements of a row from which numpy adds rows fast
PIECE = 1 << 16                 # elements at a time, which stay in the cache
_UNROLLED = 8                   # sums that numpy begins side by side in a row
_FAST = frozenset({np.add, np.maximum, np.minimum})
_CHARS = frozenset("fdbBhHiIlLqQ")
Stage = Callable[[Any, Any], Any]       # of an array and of None or the memory for the result
Size = tuple[int, int, int]             # elements before, along and after what is reduced


@cached(4096)
def reducer_of(ufunc: np.ufunc, axes: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype
               ) -> Callable[..., Any] | None:
    """The function of arrays of this shape that reduces these dimensions; None if numpy's does.

    It takes `out` as numpy's functions do. Arrays that do not lie row by row numpy reduces.

    >>> import numpy as np
    >>> from shardtrace.ir.kernels.staged_reductions import reducer_of
    >>> largest = reducer_of(np.maximum, (0, 2), (64, 20, 3), np.dtype(np.float32))
    >>> largest(np.ones((64, 20, 3), np.float32)).shape
    (20,)
    """
    add = adder_of(axes, shape, dtype) if ufunc is np.add else None
    if add is not None or ufunc not in _FAST or dtype.char not in _CHARS or (
            math.prod(shape) < FEWEST or not axes):
        return add
    stages = _stages(ufunc, axes, shape, dtype)
    if not stages:
        return None
    *first, last = stages
    kept = tuple([n for d, n in enumerate(shape) if d not in axes])

    def reduced(x: Any, out: Any = None) -> Any:
        if not x.flags.c_contiguous or out is not None and not out.flags.c_contiguous:
            return ufunc.reduce(x, axes, dtype, out)
        for stage in first:
            x = stage(x, None)
        found = last(x, out)
        return found.reshape(kept) if out is None else out
    return reduced


def _stages(ufunc: np.ufunc, axes: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype
            ) -> list[Stage]:
    """What reduces neighbouring dimensions, one group after the other; nothing if numpy's one call
    is as fast.
    """
    sizes, gone = list[int](), list[bool]()
    for d, n in enumerate(shape):
        if gone and gone[-1] == (d in axes):
            sizes[-1] *= n
        else:
            sizes.append(n)
            gone.append(d in axes)
    order = [i for i, goes in enumerate(gone) if goes]
    if gone[-1] and sizes[-1] >= SHORTEST:
        if sizes[-1] >= NARROW:
            return []
        order.insert(0, order.pop())            # of such rows little is left
    stages = []
    for i in order:
        size = math.prod(sizes[:i]), sizes[i], math.prod(sizes[i + 1:])
        stage = _faster(ufunc, size, dtype)
        if stage is None and len(order) == 1:
            return []
        stages.append(stage or _rows_added(ufunc, size, 1))
        sizes[i] = 1
    return stages


def _faster(ufunc: np.ufunc, size: Size, dtype: np.dtype) -> Stage | None:
    """A stage that is faster than numpy's call."""
    before, count, after = size
    add = row_adder((count,), dtype) if ufunc is np.add and after == 1 else None
    if add is not None:
        return lambda x, out: add(x.reshape(before, count),
                                  None if out is None else out.reshape(before))
    if before >= MANY and count < SHORTEST and count * after < 2 * SHORTEST:
        return _columns_added(ufunc, size)
    together = next((k for k in range(math.isqrt(count), 1, -1) if not count % k), 1)
    return _rows_added(ufunc, size, together) if 1 < after < NARROW and together > 1 else None


def _rows_added(ufunc: np.ufunc, size: Size, together: int) -> Stage:
    """Rows are added to each other, so many of them as one at first."""
    before, count, after = size

    def stage(x: Any, out: Any) -> Any:
        if together > 1:
            x = ufunc.reduce(x.reshape(before, count // together, together * after), 1, x.dtype)
        x = x.reshape(before, -1, after)
        return ufunc.reduce(x, 1, x.dtype, None if out is None else out.reshape(before, after))
    return stage


def _columns_added(ufunc: np.ufunc, size: Size) -> Stage:
    """Columns are added to each other, a part of them after the other."""
    before, count, after = size
    step = max(1, PIECE // (count * after))

    def stage(x: Any, out: Any) -> Any:
        x = x.reshape(size)
        found = (empty((before * after,), x.dtype) if out is None else out).reshape(before, after)
        for i in range(0, before, step):
            for k in range(after):
                _combine(ufunc, [x[i:i + step, j, k] for j in range(count)], found[i:i + step, k])
        return found
    return stage


def _combine(ufunc: np.ufunc, columns: list[Any], out: Any) -> None:
    """In the order of numpy's own sums: eight side by side, which are then added in pairs."""
    whole = len(columns) // _UNROLLED * _UNROLLED
    if whole:
        sums = [functools.reduce(ufunc, columns[j:whole:_UNROLLED]) for j in range(_UNROLLED)]
        while len(sums) > 1:
            sums = [ufunc(a, b) for a, b in zip(sums[::2], sums[1::2], strict=True)]
        columns = sums + columns[whole:]
    np.copyto(out, columns[0])
    for column in columns[1:]:
        ufunc(out, column, out=out)
