"""Restates constraints that name other meshes of the same devices on the mesh of the computation.

Over Auto axes a mesh is only a way to say which device holds what, and a function may use several.
Each constraint is restated with the axes of one mesh, and the types of values follow. A dimension
whose constraint would need part of an axis is left open.
"""
from __future__ import annotations

from typing import Any

from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.sharding import sharding_constraint_p
from ...ir.program import Equation, Program
from ...ir.rewriting.retyped import Retyped
from ...ir.shardings.normalized import unsharded
from ...ir.shardings.restate import spec_for_tiling
from ...ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ...ir.spec import UNCONSTRAINED, PartitionSpec, spec_from_entries
from ...ir.types import ArrayType


def on_one_mesh(program: Program, mesh: AbstractMesh) -> Program:
    """The program with all values on `mesh` that were on another Auto mesh of as many devices."""
    if not mesh.are_all_axes_auto or not any(
            _is_foreign(other, mesh) for other in program.result_meshes):
        return program
    return _OnOneMesh(mesh).program(program)


def _is_foreign(other: AbstractMesh, mesh: AbstractMesh) -> bool:
    return (other is not mesh and other.are_all_axes_auto and other.size == mesh.size
            and other.shape_tuple != mesh.shape_tuple)


class _OnOneMesh(Retyped):
    """Programs with types and constraints of other Auto meshes of the same size on the mesh `on`.
    """
    def __init__(self, mesh: AbstractMesh) -> None:
        super().__init__()
        self.on = mesh

    def type(self, aval: ArrayType) -> ArrayType:
        foreign = _is_foreign(aval.mesh, self.on)
        return aval.update(sharding=unsharded(aval.ndim, self.on)) if foreign else aval

    def params(self, eqn: Equation) -> dict[str, Any]:
        if eqn.op is sharding_constraint_p:
            return {**eqn.params, "sharding": self.sharding(eqn.params["sharding"])}
        return super().params(eqn)

    def sharding(self, sharding: NamedSharding) -> NamedSharding:
        """The sharding with the axes of the mesh `on`; what these cannot express is left open."""
        own = sharding.mesh
        if own.shape == self.on.shape or not own.are_all_axes_auto or own.size != self.on.size:
            return sharding
        entries = sharding.spec.entries
        stated = tuple([() if e is UNCONSTRAINED else e for e in entries])
        tiling = NamedSharding(own, spec_from_entries(stated)).tiling(len(entries))
        found = spec_for_tiling(self.on, tiling, loose=True) or PartitionSpec()
        on_mesh = found.padded(len(entries)).entries
        return named_sharding_abstract(self.on, spec_from_entries(tuple(
            [UNCONSTRAINED if _is_open(was, now) else now
             for was, now in zip(entries, on_mesh, strict=True)])))


def _is_open(was: Any, now: Any) -> bool:
    """Did the user leave the dimension open, or is there no axis of the mesh that splits it so?"""
    return was is UNCONSTRAINED or bool(was) and not now
