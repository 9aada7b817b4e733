"""Scatters of large windows, which are updated as a whole.

The operand is viewed as all of its overlapping windows, one for each position at which a window may
begin, so that only the positions of windows are computed, not those of their elements.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WRITTEN = 16            # elements from which a window is written as such
COMBINED = 256          # elements from which one is combined with what is there as such


def as_windows(shape: Sequence[int], slices: Sequence[int], ufunc: np.ufunc | None) -> bool:
    """Are windows of these sizes, parts of an operand of this shape, changed as such?

    ufunc: what is done to one element; None if it is written.
    """
    partial = any([n != m > 1 for m, n in zip(slices, shape, strict=True)])
    return partial and int(np.prod(slices, dtype=int)) >= (WRITTEN if ufunc is None else COMBINED)


def change_windows(out: np.ndarray, where: Sequence[np.ndarray], sizes: Sequence[int],
                   partial: Sequence[int], values: np.ndarray, valid: np.ndarray,
                   ufunc: np.ufunc | None) -> None:
    """Write windows of values, or combine them with what is there, in the order of the queries.

    out: of devices, addressed dimensions and whole ones. where: for each dimension but the whole
    ones where windows begin, of rank devices + queries + partial. sizes: of windows in the
    dimensions `partial` of `out`. values: of devices, queries and windows. valid: by device and
    query, which windows are changed at all.
    """
    addressed = len(where)
    extent = [1] * addressed
    for d, m in zip(partial, sizes, strict=True):
        extent[d] = m
    ends = out.strides[addressed:]
    windows = np.lib.stride_tricks.as_strided(
        out, [*[n - m + 1 for n, m in zip(out.shape, extent, strict=False)], *sizes,
              *out.shape[addressed:]],
        [*out.strides[:addressed], *[out.strides[d] for d in partial], *ends])
    last = tuple([0] * len(partial))
    starts = tuple([np.broadcast_to(at[(..., *last)], valid.shape)[valid] for at in where])
    given = values[valid]
    if ufunc is None:
        windows[starts] = given
        return
    for place, value in zip(zip(*[at.tolist() for at in starts], strict=True), given, strict=True):
        one = windows[place]
        ufunc(one, value, out=one)
