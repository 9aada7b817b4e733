"""Mesh axes in parts of prime size, which correspond to the tiles of XLA.

XLA does not know axes, only numbers of tiles and the devices that hold them. It may give some tiles
of one dimension to another. With parts of prime size, each part belongs to one dimension.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterable

from ...ir.meshes.axes import axis_factor, format_sub_axis
from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.retiling import merged_axes
from ...ir.support.caches import cached
from .effects import tile_count

Axes = tuple[str, ...]


class PrimeAxes:
    """The axes of a mesh that are not Manual, in parts of prime size."""

    def __init__(self, mesh: AbstractMesh) -> None:
        self.mesh = mesh
        self.all = self.primes([a for a in mesh.axis_names if a not in mesh.manual_axes])

    def primes(self, axes: Iterable[str]) -> Axes:
        """These axes in such parts."""
        return tuple([prime for a in axes for prime in _primes(self.mesh, a)])

    def merged(self, axes: Axes) -> Axes:
        """Parts as the largest axes that they make."""
        return _merged(self.mesh, axes)

    def others(self, cut: Iterable[Axes]) -> Axes:
        """The axes that are not among these."""
        used = {a for axes in cut for a in axes}
        return tuple([a for a in self.all if a not in used])

    def count(self, axes: Axes) -> int:
        """How many tiles axes make."""
        return tile_count(self.mesh, axes)

    def grouped(self, axes: Axes, *counts: int) -> list[Axes] | None:
        """The axes in groups of so many tiles, major first; None if an axis would be in two."""
        found, at = [], 0
        for n in counts:
            k = at
            while k < len(axes) and self.count(axes[at:k]) < n:
                k += 1
            found.append(axes[at:k])
            at = k
        return found if [*map(self.count, found)] == [*counts] and at == len(axes) else None


@cached(4096, "axes in parts of prime size")
def _primes(mesh: AbstractMesh, axis: str) -> Axes:
    found = []
    base, pre, size, _ = axis_factor(axis, mesh.shape)
    while size > 1:
        prime = next(p for p in itertools.count(2) if size % p == 0)
        found.append(format_sub_axis(base, pre, prime))
        pre, size = pre * prime, size // prime
    return tuple(found)


@cached(4096, "such parts as the largest axes that they make")
def _merged(mesh: AbstractMesh, axes: Axes) -> Axes:
    return merged_axes([(axes,)], mesh.shape)[0][0]
