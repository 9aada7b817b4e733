"""Inlines calls: the equations of a called program replace the call."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.ops.control.custom import CALLS
from ...ir.program import Atom, Equation, Literal, Program, Var


def inline_calls(program: Program) -> Program:
    """The program with the equations of called programs where they are called."""
    if CALLS.isdisjoint([op.name for op in program.ops]):
        return program
    eqns: list[Equation] = []
    consts: list[tuple[Var, Any]] = []
    outvars = _inline(program, program.invars, eqns, consts)
    return program.replace(eqns=eqns, outvars=outvars, consts=consts)


def _inline(program: Program, arguments: Sequence[Atom], eqns: list[Equation],
            consts: list[tuple[Var, Any]]) -> list[Atom]:
    """Append the equations of a program on these arguments; returns its results."""
    at: dict[Var, Atom] = dict(zip(program.invars, arguments, strict=True))
    for var, value in program.consts:
        at[var] = fresh = Var(var.aval, var.name)
        consts.append((fresh, value))

    def resolve(atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else at[atom]

    for eqn in program.eqns:
        operands = [resolve(a) for a in eqn.invars]
        if eqn.op.name in CALLS:
            (name,) = eqn.op.subprograms[:1]
            results = _inline(eqn.params[name], operands, eqns, consts)
            at.update(zip(eqn.outvars, results, strict=True))
            continue
        out = [Var(v.aval, v.name) for v in eqn.outvars]
        at.update(zip(eqn.outvars, out, strict=True))
        eqns.append(eqn.with_operands(operands, out))
    return [resolve(a) for a in program.outvars]
