"""Alternative layouts of a value."""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from ....ir.meshes.mesh import AbstractMesh, AxisType
from ....ir.ops.communication.retiling import merged_axes
from ....ir.types import Entries
from ...reasons.causes import whole_axes


def other_layouts(mesh: AbstractMesh, shape: tuple[int, ...], entries: Entries,
                  axes: tuple[str, ...], wanted: Entries | None) -> Iterator[Entries]:
    """Other layouts of the same value that differ in these axes alone, the wanted one first."""
    seen: set[Entries] = set()
    entries, wanted = merged(entries, mesh), merged(wanted, mesh) if wanted else wanted
    if wanted is not None and len(wanted) == len(entries) and not _has_parts(wanted):
        seen.add(wanted)
        yield wanted
    for d, e in itertools.combinations(range(len(shape)), 2):
        swapped = list(entries)      # the axes of two dimensions swapped
        swapped[d], swapped[e] = entries[e], entries[d]
        new = tuple(swapped)
        if entries[d] and entries[e] and new not in seen and is_layout(mesh, shape, new):
            seen.add(new)
            yield new
    bare = without(entries, axes)
    if _has_parts(bare):
        return                                   # users cannot write parts of axes
    own = tuple([a for a in axes if any(a in e for e in entries)])
    for moved in dict.fromkeys((own or axes, axes)):      # where several exchange, its own first
        for new in _with(mesh, shape, bare, moved):
            if new not in seen and new != entries:
                seen.add(new)
                yield new
    if bare not in seen:
        yield bare
    if _has_parts(entries):
        return
    if entries not in seen and any(entries) and entries != bare:
        yield entries                # pinned as it is, against propagation


def layouts_over_others(mesh: AbstractMesh, shape: tuple[int, ...], entries: Entries,
                        axes: tuple[str, ...], annotated: bool) -> Iterator[Entries]:
    """Layouts of a value with other mesh axes in place of these. annotated: the user wrote its
    layout, perhaps by mistake; try also a single other axis instead of all it has, and one axis
    more. Where an axis takes the place of another comes first.
    """
    entries = merged(entries, mesh)
    if _has_parts(entries):
        return
    taken = {a for e in entries for a in e}
    starts = [without(entries, axes)] if taken & {*axes} else []
    if annotated:
        starts += [without(entries, tuple(taken)), entries]
    for start in starts:
        has = {a for e in start for a in e}
        for a, kind in zip(mesh.axis_names, mesh.axis_types, strict=True):
            if kind != AxisType.Manual and a not in has and (annotated or a not in axes):
                yield from sorted(_with(mesh, shape, start, (a,)), key=lambda new: any(
                    n and not was for n, was in zip(new, entries, strict=True)))


def moved_to(mesh: AbstractMesh, shape: tuple[int, ...], entries: Entries, axis: str, dim: int
             ) -> Entries | None:
    """The layout with an axis on this dimension only; None if that is impossible."""
    entries = merged(entries, mesh)
    if axis in entries[dim]:
        return None
    bare = without(entries, (axis,))
    new = (*bare[:dim], (*bare[dim], axis), *bare[dim + 1:])
    return new if is_layout(mesh, shape, new) else None


def is_layout(mesh: AbstractMesh, shape: tuple[int, ...], entries: Entries) -> bool:
    """Can a value of this shape have this layout, with whole axes of several devices?"""
    axes = [a for e in entries for a in e]
    return (len({*axes}) == len(axes) and not _has_parts(entries)
            and all(_divides(mesh, *x) for x in zip(shape, entries, strict=True)))


def _has_parts(entries: Entries) -> bool:
    return any(":" in str(a) for e in entries for a in e)


def without(entries: Entries, axes: tuple[str, ...]) -> Entries:
    """The layout without these axes and their parts."""
    return tuple(tuple(a for a in e if not whole_axes([a]) & {*axes}) for e in entries)


def _with(mesh: AbstractMesh, shape: tuple[int, ...], entries: Entries, axes: tuple[str, ...]
          ) -> Iterator[Entries]:
    """The layouts with these axes on one more dimension, for each dimension that they divide."""
    for d in range(len(shape)):
        new = (*entries[d], *axes)
        if _divides(mesh, shape[d], new):
            yield (*entries[:d], new, *entries[d + 1:])


def _divides(mesh: AbstractMesh, size: int, axes: tuple[str, ...]) -> bool:
    """Do these axes split a dimension of this size, each in several parts of one size?"""
    sizes = [*map(mesh.axis_size, axes)]
    parts = math.prod(sizes)
    return size % parts == 0 and size >= parts and 1 not in sizes


def merged(entries: Entries, mesh: AbstractMesh) -> Entries:
    """The layout with consecutive parts of an axis merged."""
    if all(a in mesh.shape for e in entries for a in e):
        return entries
    (found,) = merged_axes([entries], mesh.shape)
    return tuple(map(tuple, found))
