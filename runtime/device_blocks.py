"""Converts between whole values, as they are stored, and the blocks of devices.

Used at both ends of the per-device executor, and by every engine that works on blocks.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.meshes.mesh import AbstractMesh
from ..ir.shardings.sharding import tile_index
from ..ir.spec import axis_factor
from ..ir.types import ArrayType
from .axes import MeshAtoms, linear_index
from .storage import Stored, frozen, identical

Buffers = list[Any]        # an array for each device, in mesh order; None if it is inactive


class DeviceBlocks:
    """The devices of a mesh, by their coordinates, and the blocks of values on them."""

    def __init__(self, mesh: AbstractMesh) -> None:
        self.mesh = mesh
        self.coordinates = [dict(zip(mesh.axis_names, map(int, c), strict=True))
                            for c in np.ndindex(*mesh.axis_sizes)]

    def scatter(self, x: Stored, t: ArrayType, local: ArrayType) -> Buffers:
        """For each device a copy of its block of `x`, with zeros for what is beyond the end."""
        out = []
        for at in self.coordinates:
            data = x.data[tuple(self.place(a, at) for a in x.lead)]
            out.append(filled(data[self.slices(t, local, at)], local.shape))
        return out

    def slices(self, t: ArrayType, local: ArrayType, at: dict[str, int]) -> tuple[slice, ...]:
        """The slices of the whole value that the device at these coordinates holds."""
        tiles = tile_index(self.mesh.shape, t.entries, at)
        return tuple([slice(i * n, (i + 1) * n) for i, n in zip(tiles, local.shape, strict=True)])

    def place(self, axis: str, at: dict[str, int]) -> int:
        return linear_index(self.mesh, (axis,), at)

    def assemble(self, blocks: Buffers, t: ArrayType, local: ArrayType) -> Stored:
        """The whole value. Axes along which blocks differ without sharding a dimension become
        leading.
        """
        spec = t.sharding.spec
        used = (*spec.axes(), *sorted(spec.unreduced))
        atoms = MeshAtoms(self.mesh, used)
        inside = set(atoms.of_all(spec.axes()))
        pending = set(atoms.of_all(sorted(spec.unreduced)))
        lead = tuple(a for a in atoms.order if a not in inside and (
            a in pending or self.differs(blocks, a)))
        entries = t.entries
        counts = [atoms.count(atoms.of_all(axes)) for axes in entries]
        padded = tuple(n * c for n, c in zip(local.shape, counts, strict=True))
        data = np.empty(atoms.sizes(lead) + padded, blocks[0].dtype)
        for at, block in zip(self.coordinates, blocks, strict=True):
            where = self.slices(t, local, at)
            if any(self.place(a, at) for a in atoms.order if a not in inside and a not in lead):
                continue        # a copy: the first device along these axes gives the value
            data[tuple(self.place(a, at) for a in lead) + where] = block
        end = (slice(None),) * len(lead) + tuple(slice(0, n) for n in t.shape)
        return Stored(frozen(data[end]), lead)

    def differs(self, blocks: Buffers, axis: str) -> bool:
        """Do blocks of devices that differ only in this coordinate differ?"""
        first: dict[tuple, np.ndarray] = {}
        base, _, _, rest = axis_factor(axis, self.mesh.shape)
        for at, block in zip(self.coordinates, blocks, strict=True):
            others = {**at, base: at[base] - self.place(axis, at) * rest}
            if not identical(first.setdefault(tuple(others.values()), block), block):
                return True
        return False


def filled(piece: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A copy of `piece`, extended to this shape with zeros."""
    if piece.shape == shape:
        return np.array(piece)
    block = np.zeros(shape, piece.dtype)
    block[tuple([slice(0, n) for n in piece.shape])] = piece
    return block
