"""Programs whose types say every layout: nothing is propagated, and little is written anew.

Over Explicit axes, and without a mesh, tracing has decided how each value is laid out. The RESOLVED
program then is the traced one, with the variables and equations that it has, but for values that
are given or asked for otherwise than their types say, shardings in params (the result's type says
it), and reshards that change nothing. The propagation problem, which reports ask about, is set up
when they do.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.location import UNKNOWN, Location
from ..ir.mesh import AbstractMesh
from ..ir.ops.sharding import reshard_p, sharding_constraint_p
from ..ir.program import Atom, Equation, Level, Literal, Program, Var
from ..ir.spec import UNCONSTRAINED, PartitionSpec
from ..ir.types import ArrayType
from .origins import WHEN_ASKED, Origins
from .propagate import check_ends, solve
from .resolve import (
    CAPTURED,
    asked_reason,
    bare_literal,
    defined_at,
    frozen_mesh,
    reshard_equation,
    typed,
)


def is_decided(program: Program, mesh: AbstractMesh) -> bool:
    """Do the types of a TRACED program say every layout over the axes of `mesh`?"""
    if program.holds_programs or sharding_constraint_p in program.ops:
        return False
    types = {*program.in_avals, *program.result_types, *[v.aval for v in program.constvars]}
    return ((mesh.are_all_axes_explicit or not mesh.axis_names)
            and all([t.mesh is mesh or t.mesh.empty for t in types]))


def decide(program: Program, mesh: AbstractMesh, in_shardings: Sequence[PartitionSpec | None],
           out_shardings: Sequence[PartitionSpec | None]) -> Program:
    """The RESOLVED program of one that `is_decided`."""
    check_ends(program, mesh, in_shardings, out_shardings)
    writer = _Writer(program, frozen_mesh(mesh))
    new = writer.program(in_shardings, out_shardings)

    def origins() -> Origins:
        solution = solve(program, mesh, in_shardings, out_shardings)
        kept = {v: t for v, t in solution.graph.index.items() if v not in writer.gone}
        return Origins(solution, {new: t for v, t in kept.items()
                                  if isinstance(new := writer.now.get(v, v), Var)},
                       {t: v for v, t in kept.items()})
    new.memo[WHEN_ASKED] = origins
    return new


class _Writer:
    """types: those that are not as they were, and what they are now. now: what to read instead of a
    variable; gone: those that are variables no more.
    """

    def __init__(self, program: Program, mesh: AbstractMesh) -> None:
        self.old, self.mesh = program, mesh
        self.types = {t: new for t in program.result_types
                      if (new := typed(t, mesh, t.entries, t.sharding.spec.unreduced)) is not t}
        self.ends: dict[tuple[ArrayType, PartitionSpec | None], ArrayType] = {}     # see `end`
        self.now: dict[Var, Atom] = {}
        self.gone: set[Var] = set(program.constvars)
        self.eqns: list[Equation] = []

    def program(self, in_shardings: Sequence[PartitionSpec | None],
                out_shardings: Sequence[PartitionSpec | None]) -> Program:
        old = self.old
        invars = [self.bind(v, self.end(v.aval, spec if v.aval.shape else None))
                  for v, spec in zip(old.invars, in_shardings, strict=True)]
        consts = [(self.constant(v), value) for v, value in old.consts]
        self.body()
        outvars = [self.result(i, atom, spec)
                   for i, (atom, spec) in enumerate(zip(old.outvars, out_shardings, strict=True))]
        return Program(old.name, invars, self.eqns, outvars, consts=consts, mesh=self.mesh,
                       level=Level.RESOLVED, arg_names=old.arg_names,
                       result_names=old.result_names)

    def end(self, aval: ArrayType, spec: PartitionSpec | None) -> ArrayType:
        """The type of a parameter that is given, or of a result that is asked for, as `spec`."""
        ends = self.ends
        if (aval, spec) not in ends:
            entries, pending = aval.entries, aval.sharding.spec.unreduced
            if spec is not None:
                pending = spec.unreduced
                entries = tuple([own if axes is UNCONSTRAINED else axes for own, axes in
                                 zip(entries, spec.padded(aval.ndim).entries, strict=True)])
            ends[aval, spec] = typed(aval, self.mesh, entries, pending)
        return ends[aval, spec]

    def bind(self, var: Var, aval: ArrayType) -> Var:
        if aval is not var.aval:
            self.now[var] = var = Var(aval, var.name)
        return var

    def constant(self, var: Var) -> Var:
        """A captured array is whole; where its uses want blocks of it, these are taken at once."""
        aval = var.aval
        whole = typed(aval, self.mesh, ((),) * aval.ndim)
        new = var if whole is aval else Var(whole, var.name)
        atom = self.brought(new, self.end(aval, None), UNKNOWN, CAPTURED)
        if atom is not var:
            self.now[var] = atom
        return new

    def brought(self, atom: Atom, aval: ArrayType, location: Location, reason: str) -> Atom:
        if atom.aval.sharding is aval.sharding or isinstance(atom, Literal):
            return atom
        eqn = reshard_equation(atom, aval.update(manual=atom.aval.manual), location, reason)
        self.eqns.append(eqn)
        return eqn.outvars[0]

    def result(self, i: int, atom: Atom, spec: PartitionSpec | None) -> Atom:
        old = self.old
        if isinstance(atom, Literal):
            return bare_literal(atom)
        new, wanted = self.now.get(atom, atom), self.end(atom.aval, spec)
        if new.aval is wanted:
            return new
        return self.brought(new, wanted, defined_at(old, atom), asked_reason(old, i, spec))

    def body(self) -> None:
        now, types, eqns = self.now, self.types, self.eqns
        pairs: dict[Any, Any] = {}              # of the types of operands and results, once each
        for eqn in self.old.eqns:
            op, invars, outvars = eqn.op, eqn.invars, eqn.outvars
            operands = tuple([
                now[a] if a in now else bare_literal(a) if a.__class__ is Literal else a  # type: ignore
                for a in invars])
            if op is reshard_p:
                self.reshard(eqn, operands[0])
                continue
            if types:
                if len(outvars) == 1 and (aval := types.get(outvars[0].aval)) is not None:
                    (var,) = outvars
                    new = now[var] = Var(aval, var.name)
                    eqn = eqn.on(operands, (new,))
                    pair = tuple([a.aval for a in operands]), (aval,)
                    eqn.known_types = pairs.setdefault(pair, pair)
                else:
                    eqn = eqn.on(operands, [self.bind(v, types.get(v.aval, v.aval))
                                            for v in outvars])
            elif operands != invars:
                eqn = eqn.on(operands, outvars)
            key = op.sharding_param
            if key is not None and eqn.params.get(key) is not None:
                eqn = eqn.replace(params={**eqn.params, key: None})
            eqns.append(eqn)

    def reshard(self, eqn: Equation, operand: Atom) -> None:
        """Nothing, where the operand is laid out so already."""
        (result,) = eqn.outvars
        target = self.types.get(result.aval, result.aval)
        whole = isinstance(operand, Literal) and not target.sharding.spec.unreduced
        if whole or operand.aval.sharding is target.sharding:
            self.now[result] = operand
            self.gone.add(result)
            return
        self.eqns.append(Equation(reshard_p, (operand,), (self.bind(result, target),),
                                  {"dst_sharding": target.sharding}, eqn.location))
