"""Which mesh axes could shard a dimension, by size alone, before propagation decides."""
from __future__ import annotations

from ...ir.meshes.mesh import AbstractMesh
from ...ir.rewriting.rewrite import Match


def splitting_sizes(mesh: AbstractMesh) -> list[int]:
    """The sizes of the mesh axes that may split dimensions."""
    return [n for a, n in mesh.shape.items() if n > 1 and a not in mesh.manual_axes]


def may_be_split(m: Match) -> bool:
    return bool(splitting_sizes(m.mesh))
