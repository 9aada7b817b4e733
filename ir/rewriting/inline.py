"""Inlining: calls disappear, and every nested program gets variables of its own.

A `jit` inside a traced function is one equation; the partitioner sees through it, because layouts
flow across calls. A body may be called twice, or be shared by two loops, so its variables are
renamed at each use but the first. `in_shardings` and `out_shardings` of an inner jit over Auto axes
become `sharding_constraint` equations.
"""
from __future__ import annotations

from typing import Any

from ..inference.infer import infer
from ..meshes.mesh import AxisType
from ..ops.communication.sharding import sharding_constraint_p
from ..ops.control.custom import CALLS
from ..program import Atom, Equation, Program, Var
from ..shardings.sharding import NamedSharding, named_sharding_abstract
from ..source.location import Callers, Location
from ..spec import UNCONSTRAINED
from ..types import ArrayType


def inline(program: Program) -> Program:
    """The program without calls; nested programs (loop bodies, manual regions) likewise."""
    if not program.holds_programs:
        return program
    return _Inliner(_variables(program)).program(program, rename=False)


def _variables(program: Program) -> set[Var]:
    """The variables that a program binds, without those of nested programs."""
    return {*program.invars, *program.constvars}.union(*[eqn.outvars for eqn in program.eqns])


class _Inliner:
    """seen: variables bound so far. around: the innermost of the calls on the way here, where it
    is. changed: whether the program has been changed.
    """

    def __init__(self, seen: set[Var], around: Location | None = None) -> None:
        self.seen = seen
        self.around = around
        self.extended: dict[Callers, Callers] = {}        # as `Location.reached_by` wants it
        self.changed = False
        self.env: dict[Var, Atom] = {}
        self.eqns: list[Equation] = []
        self.consts: list[tuple[Var, Any]] = []
        self.held: dict[tuple[int, Any], Var] = {}      # (id of a captured array, type)

    def program(self, program: Program, rename: bool) -> Program:
        self.mesh = program.mesh
        invars = [self.bind(v) for v in program.invars] if rename else program.invars
        self.constants(program, rename)
        self.body(program, rename)
        if not self.changed and not self.env:
            return program
        return program.replace(invars=invars, eqns=self.eqns, consts=self.consts,
                               outvars=self.atoms(program.outvars))

    def bind(self, var: Var, aval: ArrayType | None = None) -> Var:
        fresh = self.env[var] = Var(var.aval if aval is None else aval, var.name)
        return fresh

    def atoms(self, atoms: tuple[Atom, ...]) -> tuple[Atom, ...]:
        env = self.env
        return tuple([env[a] if a in env else a for a in atoms]) if env else atoms  # type: ignore

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
        """Append the equations of a program with calls inlined. rename: whether its variables need
        new names, as they are bound elsewhere too.
        """
        env, eqns = self.env, self.eqns
        plain = not rename and self.around is None
        for eqn in program.eqns:
            op = eqn.op
            if plain and not op.subprograms and (not env or env.keys().isdisjoint(eqn.invars)):
                eqns.append(eqn)
                continue
            operands = self.atoms(eqn.invars)
            if op.subprograms:
                if op.name in CALLS:
                    self.call(eqn, operands, eqn.params[op.subprograms[0]], rename)
                    continue
                held = {name: eqn.params[name] for name in op.subprograms}
                inside = {name: self.nested(value) for name, value in held.items()}
                params = eqn.params if inside == held else {**eqn.params, **inside}
            else:
                params = eqn.params
            if not rename and operands == eqn.invars and self.around is None and (
                    params is eqn.params):
                self.eqns.append(eqn)
                continue
            self.changed = True
            if not op.subprograms and any(
                    [a.aval is not b.aval for a, b in zip(operands, eqn.invars, strict=True)]):
                # A constant is on no mesh; operands of a call in a region are on the region's.
                types = infer(op, tuple([a.aval for a in operands]), params, self.mesh)
                outvars = [self.bind(v, t) if rename or v.aval is not t else v
                           for v, t in zip(eqn.outvars, types, strict=True)]
            else:
                outvars = [self.bind(v) for v in eqn.outvars] if rename else eqn.outvars
            new = eqn.with_operands(operands, outvars) if params is eqn.params else eqn.replace(
                invars=operands, outvars=outvars, params=params)
            if self.around is not None:
                new.location = eqn.location.reached_by(self.around, self.extended)
            self.eqns.append(new)

    def nested(self, value: Any) -> Any:
        """A param with the programs in it inlined, with variables of their own."""
        if isinstance(value, tuple):
            return tuple([self.nested(item) for item in value])
        if not isinstance(value, Program):
            return value
        own = _variables(value)
        rename = not self.seen.isdisjoint(own)
        if not rename:
            self.seen |= own
            if self.around is None and not value.holds_programs and not value.consts:
                return value
        return _Inliner(self.seen, self.around).program(value, rename)

    def call(self, eqn: Equation, operands: tuple[Atom, ...], called: Program,
             rename: bool) -> None:
        """Append the equations of a called program on these operands. Its locations say through
        which calls they are reached; its results take the caller's names.
        """
        self.changed = True
        count = len(called.invars)
        operands = operands[len(operands) - count:]
        operands = self.constrained(eqn, operands, eqn.params.get("in_shardings"))
        for var, operand in zip(called.invars, operands, strict=True):
            self.env[var] = operand
        self.constants(called, rename=True)
        outer = self.around, self.extended
        self.around = eqn.location if self.around is None else (
            eqn.location.reached_by(self.around, self.extended))
        self.extended = {}
        self.body(called, rename=True)
        self.around, self.extended = outer
        results = self.atoms(called.outvars)
        given = {*operands, *[v for v, _ in self.consts]}
        for var, result in zip(eqn.outvars, results, strict=True):
            if var.name is not None and isinstance(result, Var) and result not in given:
                result.name = var.name         # made here, under the caller's name
        results = self.constrained(eqn, results, eqn.params.get("out_shardings"))
        for var, result in zip(eqn.outvars, results, strict=True):
            self.env[var] = result

    def constrained(self, eqn: Equation, atoms: tuple[Atom, ...], shardings: Any
                    ) -> tuple[Atom, ...]:
        """The values as in_shardings or out_shardings of a call ask: a `sharding_constraint` of
        each that names Auto axes alone.
        """
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
