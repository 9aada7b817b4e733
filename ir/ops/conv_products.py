"""Convolutions as matrix products over windows that are written out.

The windows are written some examples at a time, or some lines of one, into memory that is used
again, and in the order in which the operand lies in memory, so that runs of it are copied: with
channels innermost, or with the last spatial dimension innermost. The products then go straight to
their place in the result.
"""
from __future__ import annotations

import math

import numpy as np

from ..pool import empty

PIECE = 1 << 20                  # bytes of windows that are written out at once, or the kernel's


def by_products(x: np.ndarray, k: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The convolution [n, g, o, results...] of windows and a kernel.

    x: [n, g, c, results..., window...], a view. k: [g, o, c, window...]. dtype: of both.
    """
    spatial = (x.ndim - 3) // 2
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
    memory = empty((step * cut * line,), dtype)
    before = (slice(None),) * (0 if last else 2 + spatial)
    for i in range(0, n, step):
        for a in range(0, lines, cut):
            some = rows[i:i + step]
            if spatial:
                some = some[(slice(None), *before, slice(a, a + cut))]
            m, results = len(some), min(cut, lines - a) * each
            piece = memory[:some.size].reshape(some.shape)
            np.copyto(piece, some)
            if last:
                place = out.reshape(n, lines, each, o)[i:i + step, a:a + cut]
                np.matmul(piece.reshape(m * results, length), right,
                          out=place.reshape(m * results, o))
            else:
                place = out.reshape(n, groups, o, lines, each)[i:i + step, :, :, a:a + cut]
                np.matmul(right, piece.reshape(m, groups, length, results),
                          out=place.reshape(m, groups, o, results))
    if last:
        out = out.reshape(n, *sizes, o)
        return out.transpose(0, spatial + 1, *range(1, spatial + 1))[:, None]
    return out.reshape(n, groups, o, *sizes)
