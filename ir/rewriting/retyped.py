"""Restates programs with other types and params, on another mesh for example."""
from __future__ import annotations

from typing import Any

from ..meshes.mesh import AbstractMesh
from ..program import Atom, Equation, Literal, Program, Var
from ..shardings.normalized import unsharded
from ..types import ArrayType


class Retyped:
    """Gives programs, and those inside of them, with types and params stated anew.

    A subclass says how: `type` of a value; `params` of an equation, and `mesh` of a program, where
    they are other ones.
    """

    def __init__(self) -> None:
        self._vars: dict[Var, Var] = {}
        self._types: dict[ArrayType, ArrayType] = {}

    def type(self, aval: ArrayType) -> ArrayType:
        raise NotImplementedError

    def params(self, eqn: Equation) -> dict[str, Any]:
        return {**eqn.params, **{name: self.nested(eqn.params[name])
                                 for name in eqn.op.subprograms}}

    def mesh(self, mesh: AbstractMesh) -> AbstractMesh:
        return mesh

    def program(self, program: Program) -> Program:
        return program.replace(
            mesh=self.mesh(program.mesh), invars=[self._var(v) for v in program.invars],
            consts=[(self._var(v), value) for v, value in program.consts],
            eqns=[eqn.replace(invars=tuple(map(self._atom, eqn.invars)),
                              outvars=tuple(map(self._var, eqn.outvars)),
                              params=self.params(eqn)) for eqn in program.eqns],
            outvars=[self._atom(v) for v in program.outvars])

    def nested(self, held: Any) -> Any:
        """What an equation holds: a program, or several."""
        return tuple(map(self.program, held)) if isinstance(held, tuple) else self.program(held)

    def _of(self, aval: ArrayType) -> ArrayType:
        found = self._types.get(aval)
        if found is None:
            found = self._types[aval] = self.type(aval)
        return found

    def _var(self, var: Var) -> Var:
        known = self._vars.get(var)
        if known is None:
            aval = self._of(var.aval)
            known = self._vars[var] = var if aval is var.aval else Var(aval, var.name)
        return known

    def _atom(self, atom: Atom) -> Atom:
        if isinstance(atom, Var):
            return self._var(atom)
        aval = self._of(atom.aval)
        return atom if aval is atom.aval else Literal(atom.val, aval)


class OnMesh(Retyped):
    """Puts values on a mesh that are on none, as what is made of arguments that nobody placed."""

    def __init__(self, mesh: AbstractMesh) -> None:
        super().__init__()
        self.on = mesh

    def type(self, aval: ArrayType) -> ArrayType:
        placed = aval.mesh.axis_names
        return aval if placed else aval.update(sharding=unsharded(aval.ndim, self.on))

    def program(self, program: Program) -> Program:
        made = [v for eqn in program.walk() for v in eqn.outvars]
        if all([v.aval.mesh.axis_names for v in (*program.invars, *made)]):
            return program
        return super().program(program)
