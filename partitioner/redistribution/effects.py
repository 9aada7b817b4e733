"""One move of a redistribution, and what it does to a block: its new shape, elements received."""
from __future__ import annotations

import math

from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.retiling import Tiling, partners, received, retiled_shape
from ...ir.support.caches import cached
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Entries, Shape


class Move(NamedTuple):
    """One step of a plan.

    kind: all_slice, all_gather, all_to_all, retile, reduce_scatter, psum, place, or view (a reshape
    of blocks to `shape`). axes: mesh axes or parts of them, major first. dim: the dimension that
    gains or loses the axes; to_dim: where an all_to_all takes them. source, target: the tilings of
    a retile.
    """
    kind: str
    axes: tuple[str, ...] = ()
    dim: int = -1
    to_dim: int = -1
    source: Tiling = ()
    target: Tiling = ()
    shape: Shape = ()


def effect(mesh: AbstractMesh, local: Shape, move: Move) -> tuple[Shape, float, int]:
    """(block after, elements received, elements in flight) for a move of a block of this shape."""
    if move.kind == "view":
        return move.shape, 0, 0
    here, shape = math.prod(local), list(local)
    if move.kind == "retile":
        size = {a: mesh.axis_size(a) for t in (move.source, move.target) for e in t for a in e}
        after = retiled_shape(local, move.source, move.target, size)
        several = partners(move.source, move.target, size)
        return (after, received(local, move.source, move.target, size),
                math.prod(after) // several if several > 1 else 0)
    n = tile_count(mesh, move.axes)
    if move.kind == "psum":
        return local, 2 * here * (n - 1) / n, 0
    if move.kind == "place":
        if move.dim >= 0:
            shape[move.dim] *= n
        return tuple(shape), 0, 0
    if move.kind == "all_gather":
        shape[move.dim] *= n
        return tuple(shape), here * (n - 1), 0
    if move.kind == "all_to_all":
        shape[move.dim] *= n
        shape[move.to_dim] //= n
        return tuple(shape), here * (n - 1) // n, 0
    shape[move.dim] //= n
    return tuple(shape), 0 if move.kind == "all_slice" else here * (n - 1) // n, 0


@cached(4096)
def tile_count(mesh: AbstractMesh, axes: tuple[str, ...]) -> int:
    """The number of blocks into which these axes split a dimension."""
    sizes, count = mesh.shape, 1
    for a in axes:
        count *= sizes[a] if a in sizes else mesh.axis_size(a)
    return count


def local_shape(mesh: AbstractMesh, shape: Shape, entries: Entries) -> Shape:
    """The shape of a device's block."""
    return tuple([n // tile_count(mesh, axes) for n, axes in zip(shape, entries, strict=True)])
