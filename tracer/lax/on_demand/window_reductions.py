"""reduce_window: a reduction over each position of a moving window (pooling)."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.api_boundary import inner
from ....ir.op import Op
from ....ir.ops.movement.shape import broadcast_in_dim_p
from ....ir.ops.reductions.pooling import (
    reduce_window_max_p,
    reduce_window_min_p,
    reduce_window_sum_p,
)
from ....ir.ops.reductions.reduction import reduce_max_p, reduce_min_p, reduce_sum_p
from ....ir.support.named_tuple import NamedTuple
from ...operands.dtype_promotion import convert, dtype_name
from ...operands.rank_promotion import shape_of
from ...trees import tree
from .. import elementwise
from ..convolution import padtype_to_pads
from ..reduction import known_reduction
from ..shape import pad
from ..slicing import slice as slice_of

__all__ = ["reduce_window", "reduce_window_shape_tuple"]


def _ints(values: Any, n: int) -> tuple[int, ...]:
    return (1,) * n if values is None else tuple(operator.index(v) for v in values)


def reduce_window(operand, init_value, computation, window_dimensions, window_strides=None,
                  padding="VALID", base_dilation=None, window_dilation=None):
    """Each window of operand combined by an associative function of two scalars.

    padding: "VALID", "SAME" or (low, high) pairs, filled with init_value, which is neutral.
    `lax.add` from 0 and `lax.max`, `lax.min` from the extreme values are ops of their own.
    """
    flat, treedef = tree.flatten(operand)
    inits, init_tree = tree.flatten(init_value)
    if treedef != init_tree:
        raise ValueError("Operands must have the same tree structure as init_values: "
                         f"{treedef} vs. {init_tree}")
    if not flat:
        raise ValueError("reduce_window must have at least one operand.")
    shape = shape_of(flat[0])
    n = len(shape)
    window = _ints(window_dimensions, n)
    strides = _ints(window_strides, n)
    holes, spread = _ints(base_dilation, n), _ints(window_dilation, n)
    for name, value in (("window_dimensions", window), ("window_strides", strides)):
        if any(m < 1 for m in value):
            raise TypeError(f"reduce_window {name} must have every element be strictly positive, "
                            f"got {value}.")
    for value in (holes, spread):
        if any(m < 1 for m in value):
            raise TypeError(f"All dilations must be positive, got {value}.")
    if isinstance(padding, str):
        sizes = [0 if m == 0 else (m - 1) * h + 1 for m, h in zip(shape, holes, strict=True)]
        reach = [(w - 1) * s + 1 for w, s in zip(window, spread, strict=True)]
        padding = padtype_to_pads(sizes, reach, strides, padding)
    pads = tuple((int(lo), int(hi)) for lo, hi in padding)
    windows = _Windows(window, strides, pads, holes, spread)
    if len(flat) == 1 and tree.structure(operand) == tree.structure(0):
        op = _window_op(known_reduction(computation, inits[0], dtype_name(flat[0])))
        if op is not None:
            return op.bind(flat[0], **windows._asdict())
        joined = {elementwise.add: reduce_window_sum_p, elementwise.max: reduce_window_max_p,
                  elementwise.min: reduce_window_min_p}.get(inner(computation))
        if joined is not None and dtype_name(inits[0]) == dtype_name(flat[0]) != np.dtype(bool):
            # Every window begins with the initial value, and these may take it last.
            out = joined.bind(flat[0], **windows._asdict())
            return computation(out, inits[0])
    out = _generic(flat, inits, treedef, computation, windows)
    return tree.unflatten(treedef, out)


class _Windows(NamedTuple):
    """The windows over an array, as params of the ops that reduce them."""
    window_dimensions: tuple[int, ...]
    window_strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]


def _window_op(reduction: Op | None) -> Op | None:
    pairs = {reduce_sum_p: reduce_window_sum_p, reduce_max_p: reduce_window_max_p,
             reduce_min_p: reduce_window_min_p}
    return None if reduction is None else pairs.get(reduction)


def _generic(flat: list[Any], inits: list[Any], treedef: Any, computation: Callable[..., Any],
             windows: _Windows) -> list[Any]:
    """Any function: one strided slice of the padded operand for each place in the window."""
    window, strides, pads, holes, spread = windows
    padded = [pad(x, convert(i, dtype_name(x)),
                  [(lo, hi, h - 1) for (lo, hi), h in zip(pads, holes, strict=True)])
              for x, i in zip(flat, inits, strict=True)]
    shape = shape_of(padded[0])
    counts = [max(0, (n - ((w - 1) * s + 1)) // t + 1) if n >= (w - 1) * s + 1 else 0
              for n, w, s, t in zip(shape, window, spread, strides, strict=True)]
    total: list[Any] | None = None
    for place in np.ndindex(*window):
        starts = [p * s if c else 0 for p, s, c in zip(place, spread, counts, strict=True)]
        limits = [a + max(0, (c - 1) * t + 1) if c else a
                  for a, c, t in zip(starts, counts, strides, strict=True)]
        parts = [slice_of(x, starts, limits, strides) for x in padded]
        if total is None:
            total = [_filled(i, p) for i, p in zip(inits, parts, strict=True)]
        combined = computation(tree.unflatten(treedef, total), tree.unflatten(treedef, parts))
        total = tree.leaves(combined)
    assert total is not None
    return total


def _filled(init: Any, part: Any) -> Any:
    return broadcast_in_dim_p.bind(convert(init, dtype_name(part)), shape=shape_of(part),
                                   broadcast_dimensions=(), sharding=None)


def reduce_window_shape_tuple(operand_shape, window_dimensions, window_strides, padding,
                              base_dilation=None, window_dilation=None):
    """The shape of the result of `reduce_window` where padding is given as pairs."""
    n = len(operand_shape)
    holes, spread = _ints(base_dilation, n), _ints(window_dilation, n)
    out = []
    for m, w, t, (lo, hi), h, s in zip(operand_shape, window_dimensions, window_strides, padding,
                                       holes, spread, strict=True):
        size = (0 if m == 0 else (m - 1) * h + 1) + lo + hi
        reach = (w - 1) * s + 1
        out.append((size - reach) // t + 1 if size >= reach else 0)
    return tuple(out)
