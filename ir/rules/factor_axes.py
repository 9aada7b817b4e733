"""The mesh axes of a dimension, divided among the factors of the dimension.

A dimension that is the two factors (i j), of sizes 4 and 16, split over (X, Y) with X=4 and Y=2,
has i over X and j over Y; with X=8 it has i over the first half of X, the sub-axis X:(1)4, and j
over X:(4)2 and Y. Axes are compared in a form without names, as fragments (axis, pre, size), so
that X:(1)4 followed by X:(4)2 is X.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..meshes.mesh import AbstractMesh
from ..spec import axis_factor, format_sub_axis, parse_axis
from ..support.caches import cached

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


@cached(4096, "axes of each factor of a rule")
def _factor_axes(axes: tuple, sizes: tuple[int, ...], mesh: AbstractMesh
                 ) -> tuple[Fragments, ...] | None:
    """The axes of each factor of a dimension, major first: a factor takes axes, or the major part
    of one, until it is full. None if an axis neither fits the rest of a factor nor is divided by
    it.
    """
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


def axis_set(axes: Iterable[Any], mesh: AbstractMesh) -> frozenset:
    """The names that stand for these axes and parts of axes: parts that make up an axis as one.

    Axes of size one keep their names. `X:(1)2` and `X:(2)2` are X on a mesh with X=4.
    """
    axes = frozenset(axes)
    if axes <= mesh.shape.keys() or not mesh.shape:    # a value on no mesh may vary, too
        return axes
    foreign = _foreign(axes, mesh)
    whole = axes & mesh.shape.keys()
    parts = {*_fragments(axes - foreign, mesh)}
    cut = _cut_at({p for _, pre, n in parts for p in (pre, pre * n)}, parts)
    return _names(_merged(sorted(cut, key=_place)), mesh) | foreign | frozenset(
        a for a in whole if mesh.shape[a] == 1)


def _foreign(axes: frozenset, mesh: AbstractMesh) -> frozenset:
    """Names that are neither axes of the mesh nor parts of such: those of vmapped dimensions."""
    return frozenset(a for a in axes
                     if a not in mesh.shape and (
                         not isinstance(a, str) or parse_axis(a)[0] not in mesh.shape))


def axes_without(axes: Iterable[Any], gone: Iterable[Any], mesh: AbstractMesh) -> frozenset:
    """The names of what remains of axes when others, or parts of them, are removed."""
    axes, gone = frozenset(axes), frozenset(gone)
    if not mesh.shape or axes <= mesh.shape.keys() and gone <= mesh.shape.keys():
        return axes - gone
    foreign = _foreign(axes, mesh)
    if foreign or _foreign(gone, mesh):
        kept = axes_without(axes - foreign, gone - _foreign(gone, mesh), mesh)
        return kept | (foreign - gone)
    have, taken = {*_fragments(axes, mesh)}, {*_fragments(gone, mesh)}
    cuts = {p for _, pre, n in have | taken for p in (pre, pre * n)}
    left = _cut_at(cuts, have) - _cut_at(cuts, taken)
    return _names(_merged(sorted(left, key=_place)), mesh) | frozenset(
        a for a in axes - gone if a in mesh.shape and mesh.shape[a] == 1)


def _place(fragment: Fragment) -> tuple[str, int]:
    return str(fragment[0]), fragment[1]


def _cut_at(cuts: Iterable[int], fragments: Iterable[Fragment]) -> set[Fragment]:
    """The fragments cut at these products, as far as they divide them."""
    out: set[Fragment] = set()
    order = sorted(cuts)
    for axis, pre, n in fragments:
        at = pre
        for c in order:
            if at < c <= pre * n and c % at == 0 and pre * n % c == 0:
                out.add((axis, at, c // at))
                at = c
    return out


def _names(fragments: Iterable[Fragment], mesh: AbstractMesh) -> frozenset:
    return frozenset(axis if n == mesh.shape[axis] else format_sub_axis(axis, pre, n)
                     for axis, pre, n in fragments)


def covered(parts: Fragments, whole: Fragments) -> bool:
    """Does every fragment lie within one of `whole`?"""
    return all(any(axis == a and p <= pre and pre * size <= p * n for a, p, n in whole)
               for axis, pre, size in parts)
