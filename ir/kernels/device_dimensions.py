"""Leading device dimensions: what evaluators of data movement ops share.

An evaluator gets arrays with `lead` device dimensions in front, each of the full size or 1 where
the value is the same on all devices. Where positions differ per device (a slice at a varying
start, a gather with varying indices), the device dimensions are indexed along with the others: one
batched numpy access, never a loop over devices.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..support.buffer_pool import empty


def lead_sizes(lead: int, arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
    """The device dimensions that the arrays have together."""
    if lead == 0:
        return ()
    return tuple(max(x.shape[d] for x in arrays) for d in range(lead))


def with_lead(x: np.ndarray, lead: int, sizes: tuple[int, ...]) -> np.ndarray:
    """`x` with device dimensions of exactly these sizes (a view, read-only where repeated)."""
    if x.shape[:lead] == sizes:
        return x
    return np.broadcast_to(x, sizes + x.shape[lead:])


def lead_indices(x: np.ndarray, lead: int, sizes: tuple[int, ...], ndim: int) -> list[np.ndarray]:
    """Index arrays of rank `ndim` for the device dimensions of `x`: own device, or 0 if common."""
    out = []
    for d, n in enumerate(sizes):
        index = np.arange(n) if x.shape[d] != 1 else np.zeros(1, np.intp)
        out.append(index.reshape((-1,) + (1,) * (ndim - d - 1)))
    return out


def without_common(x: np.ndarray, lead: int) -> tuple[np.ndarray, list[int]]:
    """`x` without the device dimensions of size 1, and those that are left."""
    differing = [d for d in range(lead) if x.shape[d] != 1]
    if len(differing) == lead:
        return x, differing
    return x.squeeze(tuple(d for d in range(lead) if x.shape[d] == 1)), differing


def is_common(x: np.ndarray, lead: int) -> bool:
    """Is the value the same on all devices?"""
    return all(n == 1 for n in x.shape[:lead])


def empty_like(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """An uninitialised array whose dimensions are in the memory order of those of `x`.

    What a device dimension was split from is then put together again without a copy.
    """
    if x.flags.c_contiguous:
        return empty(shape, x.dtype)
    order = sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]))
    out = empty(tuple([shape[d] for d in order]), x.dtype)
    return out.transpose([order.index(d) for d in range(x.ndim)])


def copied(x: np.ndarray, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """A copy of `x` in the memory order of its dimensions, repeated to this shape."""
    out = empty_like(x, x.shape if shape is None else shape)
    np.copyto(out, x)
    return out


def mergeable(t: np.ndarray, start: int, stop: int) -> bool:
    """Are dimensions start..stop of `t` contiguous in memory?"""
    shape, strides = t.shape, t.strides
    step = None
    for d in range(stop - 1, start - 1, -1):
        if shape[d] == 1:
            continue
        if step is not None and strides[d] != step:
            return False
        step = strides[d] * shape[d]
    return True
