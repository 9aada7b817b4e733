"""Slices at starts that are the same on all devices, read and written: decided once, from shapes.

In a loop such a part is all that an iteration touches, and to find it must not take longer.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..named_tuple import NamedTuple
from ..types import Shape
from .lead import empty_like


class Place(NamedTuple):
    """Where a part lies along a dimension of an array: `size` elements from a start on, which is
    the index of this number and `last` at most."""
    index: int
    dim: int
    last: int
    size: int


class Window(NamedTuple):
    """A part of an array with common starts. clips: whether starts outside are moved inside; else
    nothing is written there. ufunc: what is done with the elements; None if they are replaced.
    vector: whether the indices are one array, behind the first operand, or scalars at the end.
    lead: how many device dimensions there are.
    """
    places: tuple[Place, ...]
    lead: int
    clips: bool = True
    ufunc: np.ufunc | None = None
    vector: bool = False


def _part(lead: int, shapes: Sequence[Shape], sizes: Sequence[int]
          ) -> tuple[Callable[[Sequence[np.ndarray]], tuple[slice, ...]], Window] | None:
    """The part, a function of the starts; None if they differ between devices.

    shapes: of the array that is cut, and of the starts. sizes: of the part.
    """
    whole, *starts = shapes
    if any([math.prod(s) != 1 for s in starts]):
        return None
    moved = [(d, n - m, m) for d, (m, n) in enumerate(zip(sizes, whole[lead:], strict=True))
             if m != n]
    window = Window(tuple([Place(d, lead + d, last, size) for d, last, size in moved]), lead)
    if len(moved) == 1:
        ((place, last, size),) = moved
        front = (slice(None),) * (lead + place)

        def one(starts: Sequence[np.ndarray]) -> tuple[slice, ...]:
            first = starts[place].item()
            if first < 0:
                first = 0
            elif first > last:
                first = last
            return (*front, slice(first, first + size))
        return one, window

    def several(starts: Sequence[np.ndarray]) -> tuple[slice, ...]:
        part = [slice(None)] * len(whole)
        for d, last, size in moved:
            first = min(max(starts[d].item(), 0), last)
            part[lead + d] = slice(first, first + size)
        return tuple(part)
    return several, window


def part_taken(lead: int, shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
               params: dict[str, Any]) -> Callable[..., np.ndarray] | None:
    """The slice of an array of this shape, decided once; None if it differs between devices."""
    found = _part(lead, shapes, params["slice_sizes"])
    if found is None:
        return None
    part, window = found

    def taken(x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        return x[part(starts)]
    taken.window = window  # type: ignore[attr-defined]
    return taken


def part_updated(lead: int, shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
                 params: dict[str, Any]) -> Callable[..., np.ndarray] | None:
    """The update of an array of this shape, decided once; None if it differs between devices."""
    whole, update, *starts = shapes
    found = _part(lead, (whole, *starts), update[lead:])
    if found is None or any([m > n for m, n in zip(update[:lead], whole, strict=False)]):
        return None
    part, window = found

    def over(x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        x[part(starts)] = update
        return x

    def updated(x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        out = empty_like(x, x.shape)
        np.copyto(out, x)
        out[part(starts)] = update
        return out
    updated.over = over  # type: ignore[attr-defined]
    updated.window = window  # type: ignore[attr-defined]
    return updated
