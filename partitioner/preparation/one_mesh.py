"""Bringing constraints that name other meshes of the same devices to the mesh of the computation.

Over Auto axes a mesh is only a way to say which device holds what, and a function may use several.
Each constraint is restated with the axes of one of them (what needs a part of an axis is left
open), and the types of the values follow.
"""
from __future__ import annotations

from typing import Any

from ...ir.mesh import AbstractMesh
from ...ir.ops.communication.sharding import sharding_constraint_p
from ...ir.program import Atom, Literal, Program, Var
from ...ir.shardings.restate import spec_for_tiling
from ...ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ...ir.spec import UNCONSTRAINED, PartitionSpec, spec_from_entries
from ...ir.types import unsharded


def on_one_mesh(program: Program, mesh: AbstractMesh) -> Program:
    """The program with every value on `mesh` that is on another Auto mesh of as many devices."""
    if not mesh.are_all_axes_auto or not any(
            _is_foreign(other, mesh) for other in program.result_meshes):
        return program
    return _Restated(mesh).program(program)


def _is_foreign(other: AbstractMesh, mesh: AbstractMesh) -> bool:
    return (other is not mesh and other.are_all_axes_auto and other.size == mesh.size
            and other.shape_tuple != mesh.shape_tuple)


class _Restated:
    def __init__(self, mesh: AbstractMesh) -> None:
        self.mesh = mesh
        self.env: dict[Var, Var] = {}

    def program(self, program: Program) -> Program:
        return program.replace(
            invars=[self.var(v) for v in program.invars],
            consts=[(self.var(v), value) for v, value in program.consts],
            eqns=[eqn.replace(invars=tuple(map(self.atom, eqn.invars)),
                              outvars=tuple(map(self.var, eqn.outvars)),
                              params=self.params(eqn.op, eqn.params)) for eqn in program.eqns],
            outvars=[self.atom(v) for v in program.outvars])

    def var(self, var: Var) -> Var:
        known = self.env.get(var)
        if known is None:
            known = var
            if _is_foreign(var.aval.mesh, self.mesh):
                sharding = unsharded(var.aval.ndim, self.mesh)
                known = Var(var.aval.update(sharding=sharding), var.name)
            self.env[var] = known
        return known

    def atom(self, atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else self.var(atom)

    def params(self, op: Any, params: dict[str, Any]) -> dict[str, Any]:
        if op is sharding_constraint_p:
            return {**params, "sharding": self.sharding(params["sharding"])}
        if op.subprograms:
            return {**params, **{name: self.nested(params[name]) for name in op.subprograms}}
        return params

    def nested(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self.nested, value))
        return self.program(value) if isinstance(value, Program) else value

    def sharding(self, sharding: NamedSharding) -> NamedSharding:
        own = sharding.mesh
        if own.shape == self.mesh.shape or not own.are_all_axes_auto or own.size != self.mesh.size:
            return sharding
        entries = sharding.spec.entries
        stated = tuple([() if e is UNCONSTRAINED else e for e in entries])
        tiling = NamedSharding(own, spec_from_entries(stated)).tiling(len(entries))
        found = spec_for_tiling(self.mesh, tiling, loose=True) or PartitionSpec()
        on_mesh = found.padded(len(entries)).entries
        return named_sharding_abstract(self.mesh, spec_from_entries(tuple(
            [UNCONSTRAINED if _is_open(was, now) else now
             for was, now in zip(entries, on_mesh, strict=True)])))


def _is_open(was: Any, now: Any) -> bool:
    """A dimension that the user left open, or whose split these axes cannot say."""
    return was is UNCONSTRAINED or bool(was) and not now
