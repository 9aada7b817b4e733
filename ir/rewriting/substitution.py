"""Replaces values by others wherever a program reads them."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..program import Atom, Program


def substituted(program: Program, by: Mapping[Atom, Atom]) -> Program:
    """The program with these values replaced in operands and results (not in nested programs)."""
    def read(atoms: Sequence[Atom]) -> list[Atom]:
        return [by.get(a, a) for a in atoms]

    eqns = [eqn if by.keys().isdisjoint(eqn.invars) else
            eqn.with_operands(read(eqn.invars), eqn.outvars) for eqn in program.eqns]
    return program.replace(eqns=eqns, outvars=read(program.outvars))
