"""Layouts that a value might have instead of the one that it has."""
from __future__ import annotations

import math
from collections.abc import Iterator

from ...ir.meshes.mesh import AbstractMesh, AxisType
from ...ir.ops.communication.retiling import merged_axes
from ...ir.types import Entries


def other_layouts(mesh: AbstractMesh, shape: tuple[int, ...], entries: Entries,
                  axes: tuple[str, ...], wanted: Entries | None, others: bool = False
                  ) -> Iterator[Entries]:
    """Other layouts of the same value that differ in these axes alone, that which is wanted first;
    others: that have another axis of the mesh instead of them.
    """
    seen: set[Entries] = set()
    entries, wanted = merged(entries, mesh), merged(wanted, mesh) if wanted else wanted
    if wanted is not None and len(wanted) == len(entries) and not any(
            ":" in str(a) for e in wanted for a in e):
        seen.add(wanted)
        yield wanted
    if any(":" in str(a) for e in entries for a in e):
        return                                   # parts of axes are not for users to write
    bare = tuple(tuple(a for a in e if a not in axes) for e in entries)
    taken = {a for e in entries for a in e}
    spread = [axes] if not others else [
        (a,) for a, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
        if kind != AxisType.Manual and not {a} & {*taken, *axes} and taken & {*axes}]
    for own in spread:
        for d in range(len(shape)):
            new = (*bare[:d], (*bare[d], *own), *bare[d + 1:])
            parts = math.prod(map(mesh.axis_size, new[d]))
            if new not in seen and shape[d] % parts == 0 and shape[d] >= parts:
                seen.add(new)
                yield new
    if others:
        return
    if bare not in seen:
        yield bare
    if entries not in seen and any(entries) and entries != bare:
        yield entries                # pinned as it is, against what propagates through


def merged(entries: Entries, mesh: AbstractMesh) -> Entries:
    """The layout with the parts of an axis that follow each other as that axis."""
    if all(a in mesh.shape for e in entries for a in e):
        return entries
    (found,) = merged_axes([entries], mesh.shape)
    return tuple(map(tuple, found))
