"""Mesh axes of a dimension, told apart by the factors that the dimension consists of.

A dimension that is the two factors (i j), of sizes 4 and 16, split over (X, Y) with X=4 and Y=2,
has i over X and j over Y; with X=8 it has i over the first half of X, the sub-axis X:(1)4, and j
over X:(4)2 and Y. Axes are compared in a form without names, as fragments (axis, pre, size), so
that X:(1)4 followed by X:(4)2 is X.
"""
from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from .mesh import AbstractMesh
from .spec import axis_factor

Fragment = tuple[Any, int, int]        # axis, product of the parts before it, size
Fragments = tuple[Fragment, ...]


def factor_axes(axes: tuple, sizes: Sequence[int], mesh: AbstractMesh
                ) -> tuple[Fragments, ...] | None:
    """The axes of each factor of a dimension split over `axes`, major first.

    sizes: of the factors, major first. None where an axis does not fall on the border of factors,
    or where a dimension without factors (of size one) is split.
    """
    if not axes:
        return ((),) * len(sizes)
    return _factor_axes(axes, tuple(sizes), mesh)


@functools.lru_cache(maxsize=16384)
def _factor_axes(axes: tuple, sizes: tuple[int, ...], mesh: AbstractMesh
                 ) -> tuple[Fragments, ...] | None:
    rest = _fragments(axes, mesh)
    out = []
    for place, size in enumerate(sizes):
        if place == len(sizes) - 1:
            out.append(tuple(rest))         # sizes need not divide: blocks are rounded up
            rest = []
            break
        taken: list[Fragment] = []
        while rest and size > 1:
            axis, pre, n = rest[0]
            if size % n == 0:
                taken.append(rest.pop(0))
                size //= n
            elif n % size == 0:
                taken.append((axis, pre, size))
                rest[0] = (axis, pre * size, n // size)
                size = 1
            else:
                return None
        out.append(tuple(taken))
    return None if rest else tuple(map(_merged, out))


def _fragments(axes: Iterable[Any], mesh: AbstractMesh) -> list[Fragment]:
    """Axes without those of size one, which split nothing."""
    parts = [axis_factor(a, mesh.shape)[:3] for a in axes]
    return [p for p in parts if p[2] > 1]


def _merged(fragments: Iterable[Fragment]) -> Fragments:
    out: list[Fragment] = []
    for axis, pre, size in fragments:
        if out and out[-1][0] == axis and out[-1][1] * out[-1][2] == pre:
            out[-1] = (axis, out[-1][1], out[-1][2] * size)
        else:
            out.append((axis, pre, size))
    return tuple(out)


def canonical_axes(axes: Iterable[Any], mesh: AbstractMesh, more: Iterable[Fragment] = ()
                   ) -> Fragments:
    """A set of axes (names, and fragments) in a form that does not depend on how it is cut."""
    parts = {*_fragments(axes, mesh), *more}
    return _merged(sorted(parts, key=lambda p: (str(p[0]), p[1])))


def covered(parts: Fragments, whole: Fragments) -> bool:
    """Does every fragment lie within one of `whole`?"""
    return all(any(axis == a and p <= pre and pre * size <= p * n for a, p, n in whole)
               for axis, pre, size in parts)
