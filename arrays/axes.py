"""Mesh axes cut into atoms, so that axes and sub-axes are the same kind of thing.

A program may name an axis `X` in one place and a part of it, `X:(2)4`, in another. Atoms are the
coarsest parts such that every name in use is a run of them: on X=8 with `X:(2)4` in use they are
`X:(1)2` and `X:(2)4`. All layouts of the runtime are in atoms. There are no atoms of size 1, since
nothing can vary over them.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.meshes.mesh import BaseMesh
from ..ir.shardings.tiling import tile_index
from ..ir.spec import axis_factor, format_sub_axis, parse_axis
from ..ir.support.caches import cached, tables


@cached(256)
def _owner(sizes: tuple[tuple[str, int], ...]) -> object:
    """A key that stands for atoms and their sizes and is hashed by identity."""
    return object()


_BORDERS = tables("arrays.axes.MeshAtoms.borders",
                  "how arguments and results are stored on a mesh", 4096)


class MeshAtoms:
    """The atoms of a mesh for the axis names that a program uses.

    order: all atoms, in mesh order, major first. size: atom to its number of devices. owner: the
    same object for equal atoms, a key for tables of decisions. borders: how the planner stores
    arguments and results, by type.
    """

    __slots__ = ("_of", "_place", "borders", "mesh", "order", "owner", "size")

    def __init__(self, mesh: BaseMesh, used: Iterable[str] = ()) -> None:
        self.mesh = mesh
        whole = mesh.shape
        cuts: dict[str, set[int]] = {name: {1, n} for name, n in whole.items()}
        for name in used:
            if name not in whole:
                base, pre, size, _ = axis_factor(name, whole)
                cuts[base] |= {pre, pre * size}
        self.size: dict[str, int] = {}
        self._of: dict[str, tuple[str, ...]] = {}
        for base, n in whole.items():
            at = sorted(cuts[base])
            parts = {base if hi == n * lo else format_sub_axis(base, lo, hi // lo): hi // lo
                     for lo, hi in zip(at, at[1:], strict=False)}
            self.size.update(parts)
            self._of[base] = tuple(parts)
        self.order = tuple(self.size)
        self.owner = _owner(tuple(self.size.items()))
        self.borders: dict[Any, Any] = _BORDERS()
        self._place = {a: i for i, a in enumerate(self.order)}

    def of(self, name: str) -> tuple[str, ...]:
        """The atoms of an axis or sub-axis, major first; () where it has size 1."""
        found = self._of.get(name)
        if found is None:
            base, pre, size, _ = axis_factor(name, self.mesh.shape)
            inside = []
            for atom in self._of[base]:
                _, start, k = parse_axis(atom)
                k = self.size[atom] if k is None else k
                if pre <= start and start * k <= pre * size:
                    inside.append(atom)
            found = self._of[name] = tuple(inside)
        return found

    def of_all(self, names: Iterable[str]) -> tuple[str, ...]:
        """The atoms of several axes, in the order of the names."""
        known = self._of
        return tuple([a for name in names for a in (
            known[name] if name in known else self.of(name))]) if names else ()

    def sort(self, atoms: Iterable[str]) -> tuple[str, ...]:
        """The atoms in mesh order."""
        return tuple(sorted(atoms, key=self._place.__getitem__))

    def count(self, atoms: Iterable[str]) -> int:
        """Number of devices along all of these atoms."""
        return math.prod([self.size[a] for a in atoms])

    def sizes(self, atoms: Iterable[str]) -> tuple[int, ...]:
        return tuple([self.size[a] for a in atoms])

    def groups(self, atoms: Sequence[str]) -> np.ndarray:
        """The replica groups along these atoms, one a row: positions of devices in the mesh, the
        first atom varying slowest.
        """
        sizes = self.sizes(self.order)
        along = [self._place[a] for a in atoms]
        rest = [i for i in range(len(sizes)) if i not in along]
        ranks = np.arange(math.prod(sizes)).reshape(sizes)
        return ranks.transpose(*rest, *along).reshape(-1, self.count(atoms))


@cached(256, "atoms of meshes")
def _cut(mesh: BaseMesh, parts: frozenset[str]) -> MeshAtoms:
    return MeshAtoms(mesh, parts)


def mesh_atoms(mesh: BaseMesh, used: Iterable[str] = ()) -> MeshAtoms:
    """The atoms of a mesh, one object for the same sub-axes."""
    whole = mesh.shape
    return _cut(mesh, frozenset([name for name in used if name not in whole]))


def linear_index(mesh: BaseMesh, names: Iterable[str], coordinates: Mapping[str, Any]) -> Any:
    """Position along several axes or sub-axes, the first most significant (`lax.axis_index`).

    coordinates: mesh axis to an integer, or to integer arrays that broadcast together.
    """
    (index,) = tile_index(mesh.shape, (tuple(names),), coordinates)
    return index
