"""What each collective does to the data of one replica group, and what it costs on the wire.

An exchange takes `(x, lead, size, **params)`: `x` has `lead` leading device dimensions, the last of
which is the group (of size 1 where its members hold the same), and returns the same form. Bytes are
those that each device receives under ring algorithms: 2(n-1)/n of the block for an all-reduce,
(n-1) blocks for an all-gather, (n-1)/n for reduce-scatter and all-to-all.
Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH",
IJHPCA 2005.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import loop_dtype
from ...types import ArrayType

Params = dict[str, Any]


def grouped(exchange: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Let an exchange work within the parts of its group that `axis_index_groups` names."""
    def evaluate(x: np.ndarray, lead: int, size: int, *,
                 axis_index_groups: tuple[tuple[int, ...], ...] | None = None,
                 **params: Any) -> np.ndarray:
        if axis_index_groups is None:
            return exchange(x, lead, size, **params)
        g = lead - 1
        x = np.broadcast_to(x, (*x.shape[:g], size, *x.shape[lead:]))
        parts: list[Any] = [None] * size
        for members in axis_index_groups:
            part = exchange(np.take(x, members, axis=g), lead, len(members), **params)
            for i, member in enumerate(members):
                j = i if part.shape[g] > 1 else 0
                parts[member] = np.take(part, [j], axis=g)
        return np.concatenate(parts, axis=g)
    return evaluate


def full_group(x: np.ndarray, lead: int, size: int) -> np.ndarray:
    g = lead - 1
    return x if x.shape[g] == size else np.broadcast_to(
        x, (*x.shape[:g], size, *x.shape[lead:]))


def sum_group(x: np.ndarray, lead: int, size: int, **_: Any) -> np.ndarray:
    x = full_group(x, lead, size)
    if x.dtype == bool:
        return np.any(x, axis=lead - 1, keepdims=True)
    return x.sum(axis=lead - 1, keepdims=True, dtype=x.dtype)


def max_group(x: np.ndarray, lead: int, size: int, **_: Any) -> np.ndarray:
    return x.max(axis=lead - 1, keepdims=True)


def min_group(x: np.ndarray, lead: int, size: int, **_: Any) -> np.ndarray:
    return x.min(axis=lead - 1, keepdims=True)


def combined_group(combine: np.ufunc) -> Callable[..., np.ndarray]:
    """All blocks of a group, combined by a binary function."""
    def evaluate(x: np.ndarray, lead: int, size: int, **_: Any) -> np.ndarray:
        x = full_group(x, lead, size)
        found = combine.reduce(x, axis=lead - 1, keepdims=True, dtype=loop_dtype(x.dtype))
        return found.astype(x.dtype, copy=False)
    return evaluate


def gather(x: np.ndarray, lead: int, size: int, *, all_gather_dimension: int, tiled: bool,
           **_: Any) -> np.ndarray:
    """The blocks of the group one after the other along a dimension; a new dimension if not tiled.
    """
    g = lead - 1
    x = full_group(x, lead, size)
    d = lead + all_gather_dimension
    moved = np.moveaxis(x, g, d - 1)             # the group is now dimension d - 1, data dim at d
    if tiled:
        shape = (*moved.shape[:d - 1], moved.shape[d - 1] * moved.shape[d], *moved.shape[d + 1:])
        moved = moved.reshape(shape)
    return np.expand_dims(moved, g)


def scattered(reduction: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The evaluator that gives each member of a group its block of what a reduction gives all."""
    def evaluate(x: np.ndarray, lead: int, size: int, *, scatter_dimension: int, tiled: bool,
                 **_: Any) -> np.ndarray:
        return own_blocks(reduction(x, lead, size), lead - 1, lead + scatter_dimension, size, tiled)
    return evaluate


def own_blocks(x: np.ndarray, g: int, d: int, size: int, tiled: bool) -> np.ndarray:
    """Member i of the group (dimension g, all equal) takes block i of dimension d."""
    if tiled:
        shape = (*x.shape[:d], size, x.shape[d] // size, *x.shape[d + 1:])
        x = x.reshape(shape)
    x = np.squeeze(x, g)
    return np.moveaxis(x, d - 1, g)


def own_slice(x: np.ndarray, lead: int, size: int, *, dimension: int, **_: Any) -> np.ndarray:
    g, d = lead - 1, lead + dimension
    if x.shape[g] == 1:
        return own_blocks(x, g, d, size, True)
    n = x.shape[d] // size
    blocks = x.reshape((*x.shape[:d], size, n, *x.shape[d + 1:]))
    return np.moveaxis(np.diagonal(blocks, axis1=g, axis2=d), -1, g)


def all_to_all(x: np.ndarray, lead: int, size: int, *, split_axis: int, concat_axis: int,
               tiled: bool, **_: Any) -> np.ndarray:
    """Split each member's block along one dimension, send a part to every member, and join what is
    received along another.
    """
    g = lead - 1
    x = full_group(x, lead, size)
    s = lead + split_axis
    if tiled:
        x = x.reshape((*x.shape[:s], size, x.shape[s] // size, *x.shape[s + 1:]))
        # dims: g = source, s = destination; the source becomes the major part of concat_axis
        c = lead + concat_axis
        x = np.moveaxis(x, s, 0)                 # destination first; other dims move up by one
        source = g + 1
        x = np.moveaxis(x, source, c)            # in front of dimension c (which moved to c + 1)
        x = x.reshape((*x.shape[:c], x.shape[c] * x.shape[c + 1], *x.shape[c + 2:]))
        return np.moveaxis(x, 0, g)
    x = np.moveaxis(x, s, 0)                     # destination first; the split dim is gone
    x = np.moveaxis(x, g + 1, lead + concat_axis)
    return np.moveaxis(x, 0, g)


def permute(x: np.ndarray, lead: int, size: int, *, perm: tuple[tuple[int, int], ...],
            **_: Any) -> np.ndarray:
    """For each (source, target) pair the target gets the source's block; who is no target gets
    zeros.
    """
    g = lead - 1
    x = full_group(x, lead, size)
    sources = np.full(size, -1)
    for src, dst in perm:
        sources[dst] = src
    out = np.take(x, np.maximum(sources, 0), axis=g)
    if (sources < 0).any():
        index = (slice(None),) * g + (sources < 0,)
        out[index] = np.zeros((), x.dtype)
    return out


def members(n: int, params: Params) -> int:
    """How many devices exchange: all `n` of the group, or those of one of its parts."""
    parts = params.get("axis_index_groups")
    return n if parts is None else len(parts[0])


def wire_reduce(t: ArrayType, n: int, params: Params) -> int:
    n = members(n, params)
    return 2 * (n - 1) * t.local_nbytes // n


def wire_gather(t: ArrayType, n: int, params: Params) -> int:
    return (members(n, params) - 1) * t.local_nbytes


def wire_exchange(t: ArrayType, n: int, params: Params) -> int:
    n = members(n, params)
    return (n - 1) * t.local_nbytes // n


def wire_permute(t: ArrayType, n: int, params: Params) -> int:
    return t.local_nbytes if any(s != d for s, d in params["perm"]) else 0


def wire_nothing(t: ArrayType, n: int, params: Params) -> int:
    return 0
