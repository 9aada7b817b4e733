"""Meshes of the same devices that cut them differently, and the mesh whose axes are parts of both.

A device's place in mesh order is a number, and the axes of a mesh are digits of it. Two meshes of
one size have a common refinement where the digits of both can be cut into smaller ones that agree:
(4, 2) and (2, 4) have (2, 2, 2), while (2, 3) and (3, 2) have none. Every spec on either mesh is a
spec on the refinement; back again it is one where its axes come in whole groups.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..meshes.axes import AxisName
from ..meshes.mesh import AbstractMesh, AxisType
from ..spec import UNCONSTRAINED, PartitionSpec, spec_from_entries

Parts = Mapping[AxisName, tuple[AxisName, ...]]      # axis of a mesh -> axes of the refinement


class Refinement:
    """The common refinement of meshes of one size. Its axes are called as those of the first mesh;
    the parts of one that is cut have a number appended (`x_0`, `x_1`).

    >>> x, y = AbstractMesh((4,), ("x",)), AbstractMesh((2, 2), ("a", "b"))
    >>> both = common_refinement([x, y])
    >>> both.onto(y).shape_tuple, both.to_refined(y, PartitionSpec("a", None))
    ((('x_0', 2), ('x_1', 2)), P('x_0', None))
    """

    def __init__(self, mesh: AbstractMesh, meshes: Sequence[AbstractMesh],
                 parts: Mapping[Any, Parts]) -> None:
        self.mesh = mesh               # with the axis types of the first
        self.meshes = tuple(meshes)    # those that it refines
        self._parts = parts            # by the shape_tuple of a mesh
        self._onto: dict[AbstractMesh, AbstractMesh] = {}

    def knows(self, mesh: AbstractMesh) -> bool:
        """Is it one of the meshes that this refines?"""
        return mesh.shape_tuple in self._parts

    def parts(self, mesh: AbstractMesh) -> Parts:
        """The axes of the refinement that make up each axis of `mesh`, major first."""
        return self._parts[mesh.shape_tuple]

    def onto(self, mesh: AbstractMesh) -> AbstractMesh:
        """The refinement with the axis types of `mesh`."""
        found = self._onto.get(mesh)
        if found is None:
            given = {part: mesh.axis_type(a) for a, named in self.parts(mesh).items()
                     for part in named}
            rest = (AxisType.Explicit if mesh.are_all_axes_explicit else
                    AxisType.Manual if mesh.are_all_axes_manual else AxisType.Auto)
            types = tuple([given.get(a, rest) for a in self.mesh.axis_names])
            found = self._onto[mesh] = self.mesh.update(axis_types=types)
        return found

    def axes(self, mesh: AbstractMesh, names: Iterable[AxisName]) -> tuple[AxisName, ...]:
        """The axes of the refinement that these axes of `mesh` stand for."""
        parts = self.parts(mesh)
        return tuple([part for a in names for part in parts.get(a, (a,))])

    def to_refined(self, mesh: AbstractMesh, spec: PartitionSpec) -> PartitionSpec:
        """A spec on `mesh` with the axes of the refinement."""
        return spec_from_entries(
            tuple([e if e is UNCONSTRAINED else self.axes(mesh, e) for e in spec.entries]),
            frozenset(self.axes(mesh, spec.unreduced)), frozenset(self.axes(mesh, spec.reduced)))

    def from_refined(self, mesh: AbstractMesh, spec: PartitionSpec) -> PartitionSpec | None:
        """A spec on the refinement with the axes of `mesh`; None where it cuts one of them."""
        wholes = {named: a for a, named in self.parts(mesh).items() if named}
        entries = []
        for entry in spec.entries:
            found = _grouped(entry, wholes)
            if found is None:
                return None
            entries.append(found)
        sets = []
        for names in (spec.unreduced, spec.reduced):
            found = _grouped(self.mesh.sort_axes(names), wholes)
            if found is None:
                return None
            sets.append(frozenset(found))
        return spec_from_entries(tuple(entries), *sets)


def _grouped(names: Sequence[AxisName], wholes: Mapping[tuple[AxisName, ...], AxisName]
             ) -> tuple[AxisName, ...] | None:
    """Names put together to whole axes, in order; None where some are left over."""
    found, rest = [], tuple(names)
    while rest:
        taken = next((n for n in range(1, len(rest) + 1) if rest[:n] in wholes), None)
        if taken is None:
            return None
        found.append(wholes[rest[:taken]])
        rest = rest[taken:]
    return tuple(found)


def common_refinement(meshes: Sequence[AbstractMesh]) -> Refinement | None:
    """The coarsest mesh that refines all of these; None where there is none."""
    first = meshes[0]
    if any(m.size != first.size for m in meshes):
        return None
    cuts = sorted({cut for m in meshes for span in _spans(m) for cut in span}, reverse=True)
    if any(high % low for high, low in zip(cuts, cuts[1:], strict=False)):
        return None
    taken = {a for m in meshes for a in m.axis_names}
    names: list[AxisName] = []
    sizes: list[int] = []
    spans: list[tuple[int, int]] = []
    types: list[AxisType] = []
    for axis, (high, low) in zip(first.axis_names, _spans(first), strict=True):
        inside = [cut for cut in cuts if high > cut > low]
        for top, bottom in zip([high, *inside], [*inside, low], strict=True):
            names.append(_fresh(axis, len(names), taken) if inside else axis)
            sizes.append(top // bottom)
            spans.append((top, bottom))
            types.append(first.axis_type(axis))
    mesh = first.update(axis_sizes=tuple(sizes), axis_names=tuple(names), axis_types=tuple(types))
    parts: dict[Any, Parts] = {}
    for m in meshes:
        parts[m.shape_tuple] = {
            axis: tuple([n for n, (top, bottom) in zip(names, spans, strict=True)
                         if top > bottom and high >= top and bottom >= low])
            for axis, (high, low) in zip(m.axis_names, _spans(m), strict=True)}
    own = {axis: (axis,) for axis in first.axis_names if axis in names}
    parts[first.shape_tuple] = {**parts[first.shape_tuple], **own}
    return Refinement(mesh, meshes, parts)


def _fresh(axis: AxisName, place: int, taken: set[AxisName]) -> str:
    """A name for a part of an axis, which no mesh has."""
    name = f"{axis}_{place}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _spans(mesh: AbstractMesh) -> list[tuple[int, int]]:
    """For each axis, of how many devices its slices are, before and after it cuts them."""
    sizes = mesh.axis_sizes
    return [(math.prod(sizes[i:]), math.prod(sizes[i + 1:])) for i in range(len(sizes))]
