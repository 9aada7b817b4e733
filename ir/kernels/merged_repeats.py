"""Reshapes an array whose last dimension is a broadcast: `jnp.repeat` of elements.

numpy's own reshape copies such an array element by element, in short loops.
"""
from __future__ import annotations

import math

import numpy as np

from ..support.buffer_pool import empty

LARGE = 1 << 12                 # elements from which it matters how they are copied
FEW = 4                         # repetitions that are written one after another


def may_repeat(shape: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Does a reshape merge the last dimension, so that `merged` may have something to do?"""
    return joins_last(shape, new) and len(shape) > 1 and math.prod(new) >= LARGE


def joins_last(shape: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Is the last dimension, of several elements, but a part of the new last one?"""
    return bool(shape and new) and 1 < shape[-1] < new[-1] and not new[-1] % shape[-1]


def merged(x: np.ndarray, new: tuple[int, ...]) -> np.ndarray:
    """`x.reshape(new)`, of an operand whose last dimension may be a repetition.

    >>> import numpy as np
    >>> from shardtrace.ir.kernels.merged_repeats import merged
    >>> x = np.broadcast_to(np.arange(3)[:, None], (3, 2))
    >>> merged(x, (6,)).tolist()
    [0, 0, 1, 1, 2, 2]
    """
    strides = x.strides
    if strides[-1] or not any(strides):
        return x.reshape(new)
    count = x.shape[-1]
    if count > FEW or count * x.itemsize > 16 or x.dtype.hasobject:
        return np.repeat(x[..., 0], count, axis=-1).reshape(new)
    out = empty(x.shape, x.dtype)
    for i in range(count):
        out[..., i] = x[..., 0]
    return out.reshape(new)
