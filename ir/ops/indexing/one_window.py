"""Scatters into a single window, at the same position on all devices: evaluated on a slice.

`x.at[i].set(...)` and `x.at[:, 3:7].add(...)` are such scatters, of one query each.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...kernels.device_dimensions import copied
from ...kernels.dynamic_slices import Place, Window
from ...support.named_tuple import NamedTuple
from ...types import Shape
from ..gather_numbers import GatherScatterMode
from .scatter_derivatives import slice_sizes_of


class OneWindow(NamedTuple):
    """part: where the window lies. sizes: its shape; None if it lies outside, and is dropped."""
    part: tuple[slice, ...]
    sizes: tuple[int, ...] | None

    def change(self, x: np.ndarray, updates: np.ndarray, ufunc: np.ufunc | None) -> None:
        """Write the updates into `x`, or what the ufunc makes of what was there and of them."""
        if self.sizes is None:
            return
        lead = len(self.part) - len(self.sizes)
        new = updates.reshape(updates.shape[:lead] + self.sizes)
        if ufunc is None:
            x[self.part] = new
        else:
            here = x[(*self.part, ...)]         # an array even where it is a scalar
            ufunc(here, new, out=here)


def one_window(lead: int, x: np.ndarray, indices: np.ndarray, updates: np.ndarray,
               params: dict[str, Any]) -> OneWindow | None:
    """The window that a scatter with these params changes; None if there are several."""
    n = params["dimension_numbers"]
    if n.operand_batching_dims or math.prod(indices.shape[:-1]) != 1:
        return None
    shape = x.shape[lead:]
    sizes = tuple(slice_sizes_of(shape, updates.shape[lead:], n))
    starts = [0] * len(shape)
    for d, at in zip(n.scatter_dims_to_operand_dims, indices.reshape(-1).tolist(), strict=True):
        last = shape[d] - sizes[d]
        if not 0 <= at <= last:
            if params["mode"] is not GatherScatterMode.CLIP:
                return OneWindow((), None)
            at = min(max(at, 0), last)
        starts[d] = at
    part = [slice(None)] * lead
    part += [slice(at, at + m) for at, m in zip(starts, sizes, strict=True)]
    return OneWindow(tuple(part), sizes)


def window_changed(lead: int, shapes: Sequence[Shape], params: dict[str, Any],
                   ufunc: np.ufunc | None) -> Callable[..., np.ndarray] | None:
    """The scatter of arrays of these shapes, if it changes one window; None if it does not."""
    whole, indices, updates = shapes
    n = params["dimension_numbers"]
    if n.operand_batching_dims or math.prod(indices[:-1]) != 1 or not indices[-1] or any(
            [m > k for m, k in zip(updates[:lead], whole, strict=False)]):
        return None
    sizes = slice_sizes_of(whole[lead:], updates[lead:], n)
    places = tuple([Place(k, lead + d, whole[lead + d] - sizes[d], sizes[d])
                    for k, d in enumerate(n.scatter_dims_to_operand_dims)])
    clips = params["mode"] is GatherScatterMode.CLIP
    filled = (*updates[:lead], *sizes)

    def part(at: np.ndarray) -> tuple[slice, ...] | None:
        found = [slice(None)] * len(whole)
        for (_, d, last, size), start in zip(places, at.reshape(-1).tolist(), strict=True):
            if not 0 <= start <= last:
                if not clips:
                    return None
                start = min(max(start, 0), last)
            found[d] = slice(start, start + size)
        return tuple(found)

    def over(x: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
        """x with the window changed, written over x where that can be written to."""
        if not x.flags.writeable:
            return changed(x, at, values)
        where = part(at)
        if where is not None:
            values = values.reshape(filled)
            if ufunc is None:
                x[where] = values
            else:
                here = x[where]
                ufunc(here, values, out=here)
        return x

    def changed(x: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
        return over(copied(x), at, values)
    changed.over = over  # type: ignore[attr-defined]
    changed.window = over.window = Window(places, lead, clips, ufunc, True)  # type: ignore
    return changed
