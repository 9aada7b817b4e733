"""Convolutions as matrix products over materialised windows (im2col).

Windows are written a few examples, or a few lines of one, at a time into a buffer that is reused.
They follow the operand's memory order, channels or the last spatial dimension innermost, so that
contiguous runs are copied. The products are written straight to their place in the result.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...support.buffer_pool import empty
from ...support.threads import in_parallel
from ..windows import write_runs
from .blas_threads import for_work, shares, single_threaded

FEW = 128                        # results of each example that are contiguous
PIECE = 1 << 20                  # bytes of windows that are written out at once, or the kernel's


def by_products(x: np.ndarray, k: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The convolution [n, g, o, results...] of windows and a kernel.

    x: [n, g, c, results..., window...], a view. k: [g, o, c, window...]. dtype: of both.
    """
    spatial = (x.ndim - 3) // 2
    if x.shape[1] == 1 and spatial and x.size and x.strides[0] < min(
            x.strides[2], x.strides[2 + spatial]) and math.prod(x.shape[3:3 + spatial]) <= FEW:
        return _by_columns(x, k, dtype)
    n, groups, channels = x.shape[:3]
    sizes, window = x.shape[3:3 + spatial], x.shape[3 + spatial:]
    o, count, length = k.shape[1], math.prod(sizes), channels * math.prod(window)
    s, r = range(3, 3 + spatial), range(3 + spatial, 3 + 2 * spatial)
    last = groups == 1 and spatial > 0 and x.strides[2] < x.strides[2 + spatial]
    if last:                                # [n, results, window, c] @ [window, c, o]
        rows = x.transpose(0, 1, *s, *r, 2)[:, 0]
        right = k[0].transpose(*range(2, 2 + spatial), 1, 0).reshape(length, o)
        out = empty((n, count, o), dtype)
        shape = (count, length)
    else:                                   # [g, o, c window] @ [n, g, c window, results]
        rows = x.transpose(0, 1, 2, *r, *s)
        right = k.reshape(groups, o, length)
        out = empty((n, groups, o, count), dtype)
        shape = (groups, length, count)
    lines = sizes[0] if spatial else 1      # of results: pieces are some of an example's, or all
    each, line = count // max(lines, 1), math.prod(shape) // max(lines, 1)
    per = max(1, max(PIECE, k.nbytes) // max(line * dtype.itemsize, 1))
    step, cut = max(1, min(n, per // max(lines, 1))), -(-lines // -(-lines // per)) if lines else 1
    before = (slice(None),) * (0 if last else 2 + spatial)

    def work(pieces: Iterator[tuple[int, int]], multiply: Any) -> None:
        memory = empty((step * cut * line,), dtype)
        for i, a in pieces:
            some = rows[i:i + step]
            if spatial:
                some = some[(slice(None), *before, slice(a, a + cut))]
            m, results = len(some), min(cut, lines - a) * each
            piece = memory[:some.size].reshape(some.shape)
            write_runs(piece, some)
            if last:
                place = out.reshape(n, lines, each, o)[i:i + step, a:a + cut]
                multiply(piece.reshape(m * results, length), right,
                         out=place.reshape(m * results, o))
            else:
                place = out.reshape(n, groups, o, lines, each)[i:i + step, :, :, a:a + cut]
                multiply(right, piece.reshape(m, groups, length, results),
                         out=place.reshape(m, groups, o, results))
    _each([(i, a) for i in range(0, n, step) for a in range(0, lines, cut)], work,
          (step if last else 1) * cut * each * length * o, n * groups * count * length * o)
    if last:
        out = out.reshape(n, *sizes, o)
        return out.transpose(0, spatial + 1, *range(1, spatial + 1))[:, None]
    return out.reshape(n, groups, o, *sizes)


def _by_columns(x: np.ndarray, k: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The convolution of one group where examples lie innermost in memory, [c window, results n]: a
    sum of products over pieces of what is summed, those of each thread one after the other.

    The gradient of a kernel is such a convolution, of few results, with channels for examples.
    """
    spatial = (x.ndim - 3) // 2
    n, _, channels = x.shape[:3]
    sizes, (lines, *others) = x.shape[3:3 + spatial], x.shape[3 + spatial:]
    o, width = k.shape[1], math.prod(sizes) * n
    left = x[:, 0].transpose(1, *range(2 + spatial, x.ndim - 1), *range(2, 2 + spatial), 0)
    right = k[0].transpose(*range(1, 2 + spatial), 0)
    line = math.prod(others) * width
    per = max(1, PIECE // (line * dtype.itemsize))
    step, cut = max(1, min(channels, per // lines)), min(lines, per)
    pieces = [(c, a) for c in range(0, channels, step) for a in range(0, lines, cut)]
    each, total = step * cut * line * o, channels * lines * line * o
    count = -(-len(pieces) // shares(each, total))
    parts = empty((-(-len(pieces) // count), width, o), dtype)

    def work(numbers: Iterator[int], multiply: Any) -> None:
        memory = empty((step * cut * line,), dtype)
        for i in numbers:
            for c, a in pieces[i * count:(i + 1) * count]:
                some = left[c:c + step, a:a + cut]
                piece = memory[:some.size].reshape(some.shape)
                write_runs(piece, some)
                factors = (piece.reshape(-1, width).T,
                           right[c:c + step, a:a + cut].reshape(-1, o))
                if (c, a) == pieces[i * count]:
                    multiply(*factors, out=parts[i])
                else:
                    parts[i] += multiply(*factors)
    _each(range(len(parts)), work, each, total)
    out = np.add.reduce(parts, 0, dtype).reshape(*sizes, n, o)
    return out.transpose(spatial, spatial + 1, *range(spatial))[:, None]


def _each(pieces: Sequence[Any], work: Callable[[Iterator[Any], Any], None], each: int,
          total: int) -> None:
    """Do all pieces on as many threads as pay: products of `each` multiply-adds, and of `total`.

    work: does those of an iterator, with numpy's product as it is given.
    """
    threads = shares(each, total) if len(pieces) > 1 else 1
    multiply = single_threaded(np.matmul) if threads > 1 else for_work(np.matmul, each)
    in_parallel([functools.partial(work, iter(pieces), multiply)] * threads)
