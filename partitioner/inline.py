"""Inlining: calls disappear, and every nested program gets variables of its own.

A `jit` inside a traced function is one equation; the partitioner sees through it, because layouts
flow across calls. A body may be called twice, or be shared by two loops, so its variables are
renamed at each use. `in_shardings` and `out_shardings` of an inner jit over Auto axes become
`sharding_constraint` equations.
"""
from __future__ import annotations

from typing import Any

from ..ir.mesh import AxisType
from ..ir.ops.sharding import sharding_constraint_p
from ..ir.program import Atom, Equation, Literal, Program, Var
from ..ir.sharding import NamedSharding, named_sharding_abstract
from ..ir.spec import UNCONSTRAINED
from .regions import INLINED


def inline(program: Program) -> Program:
    """The program without calls; nested programs (loop bodies, manual regions) likewise."""
    if not program.holds_programs:
        return program
    return _Inliner().program(program, rename=False)


class _Inliner:
    """scope: the names of scopes around the calls that led here."""

    def __init__(self, scope: str = "") -> None:
        self.scope = scope
        self.env: dict[Var, Atom] = {}
        self.eqns: list[Equation] = []
        self.consts: list[tuple[Var, Any]] = []
        self.held: dict[tuple[int, Any], Var] = {}      # (id of a captured array, type)

    def program(self, program: Program, rename: bool) -> Program:
        invars = [self.bind(v) if rename else v for v in program.invars]
        self.constants(program, rename)
        self.body(program, rename)
        return program.replace(invars=invars, eqns=self.eqns, consts=self.consts,
                               outvars=[self.atom(v) for v in program.outvars])

    def bind(self, var: Var) -> Var:
        fresh = self.env[var] = Var(var.aval, var.name)
        return fresh

    def atom(self, atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else self.env.get(atom, atom)

    def constants(self, program: Program, rename: bool) -> None:
        for var, value in program.consts:
            same = self.held.get((id(value), var.aval))
            if same is None:
                same = self.bind(var) if rename else var
                self.held[id(value), var.aval] = same
                self.consts.append((same, value))
            if same is not var:
                self.env[var] = same

    def body(self, program: Program, rename: bool) -> None:
        for eqn in program.eqns:
            operands = tuple(map(self.atom, eqn.invars))
            called = INLINED.get(eqn.op.name)
            if called is not None:
                self.call(eqn, operands, eqn.params[called], rename)
                continue
            params = eqn.params
            if eqn.op.subprograms:
                params = {**params, **{name: self.nested(params[name])
                                       for name in eqn.op.subprograms}}
            elif not rename and operands == eqn.invars and not self.scope:
                self.eqns.append(eqn)
                continue
            outvars = [self.bind(v) for v in eqn.outvars] if rename else eqn.outvars
            self.eqns.append(eqn.replace(invars=operands, outvars=outvars, params=params,
                                         location=eqn.location.within(self.scope)))

    def nested(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self.nested, value))
        if not isinstance(value, Program):
            return value
        return _Inliner(self.scope).program(value, rename=True)

    def call(self, eqn: Equation, operands: tuple[Atom, ...], called: Program,
             rename: bool) -> None:
        count = len(called.invars)
        operands = operands[len(operands) - count:]
        operands = self.constrained(eqn, operands, eqn.params.get("in_shardings"))
        for var, operand in zip(called.invars, operands, strict=True):
            self.env[var] = operand
        self.constants(called, rename=True)
        outer, self.scope = self.scope, eqn.location.within(self.scope).scope
        self.body(called, rename=True)
        self.scope = outer
        results = tuple(map(self.atom, called.outvars))
        results = self.constrained(eqn, results, eqn.params.get("out_shardings"))
        for var, result in zip(eqn.outvars, results, strict=True):
            self.env[var] = result

    def constrained(self, eqn: Equation, atoms: tuple[Atom, ...], shardings: Any
                    ) -> tuple[Atom, ...]:
        if not shardings or all(not isinstance(s, NamedSharding) for s in shardings):
            return atoms
        out = []
        for atom, sharding in zip(atoms, shardings, strict=True):
            if isinstance(sharding, NamedSharding) and _all_auto(sharding) and atom.aval.shape:
                abstract = named_sharding_abstract(sharding.mesh.abstract_mesh, sharding.spec)
                aval = atom.aval if atom.aval.mesh is abstract.mesh else atom.aval.update(
                    sharding=named_sharding_abstract(abstract.mesh.abstract_mesh, atom.aval.spec))
                result = Var(aval, getattr(atom, "name", None))
                self.eqns.append(Equation(sharding_constraint_p, (atom,), (result,),
                                          {"sharding": abstract}, eqn.location))
                atom = result
            out.append(atom)
        return tuple(out)


def _all_auto(sharding: NamedSharding) -> bool:
    mesh = sharding.mesh
    return bool(mesh.auto_axes) and all(
        mesh.axis_type(a) is AxisType.Auto for entry in sharding.spec.entries
        if entry is not UNCONSTRAINED for a in entry)
