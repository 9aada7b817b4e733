"""Constant splitting: each reader of a cheap constant gets its own copy, as in Shardy.

A mask computed from positions costs nothing to make. With one copy per reader, each can be laid out
as its reader needs. Copies that turn out equal on blocks are merged again at the end.
"""
from __future__ import annotations

from collections.abc import Iterable

from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.rewriting.inside import inside
from ..factors import rule_info


def split_constants(program: Program) -> Program:
    """The program with equations on constants alone repeated for each reader."""
    program = inside(program, split_constants)
    constant: dict[Atom, int] = {}              # result to the number of its equation
    eqns: list[Equation] = []

    def copied(operands: Iterable[Atom]) -> dict[Atom, Atom]:
        now: dict[Atom, Atom] = {}
        waiting = [a for a in operands if a in constant]
        needed: set[int] = set()
        while waiting:
            k = constant[waiting.pop()]
            if k not in needed:
                needed.add(k)
                waiting += [a for a in program.eqns[k].invars if a in constant]
        for k in sorted(needed):
            eqn = program.eqns[k]
            made = [Var(v.aval, v.name) for v in eqn.outvars]
            eqns.append(eqn.with_operands([now.get(a, a) for a in eqn.invars], made))
            now.update(zip(eqn.outvars, made, strict=True))
        return now

    for k, eqn in enumerate(program.eqns):
        if _is_constant(eqn, constant):
            constant.update(dict.fromkeys(eqn.outvars, k))
            continue
        now = copied(eqn.invars)
        eqns.append(eqn.replace(invars=[now.get(a, a) for a in eqn.invars]) if now else eqn)
    if not constant:
        return program
    outvars = []
    for atom in program.outvars:
        outvars.append(copied((atom,)).get(atom, atom))
    return program.replace(eqns=eqns, outvars=outvars)


def _is_constant(eqn: Equation, constant: dict[Atom, int]) -> bool:
    """Is it a broadcast, an iota or elementwise, and computed from constants alone?"""
    op = eqn.op
    if op.effect or op.subprograms or op.collective or op.manual or op.multiple_results or not all(
            [a.__class__ is Literal or a in constant for a in eqn.invars]):
        return False
    return not eqn.invars or not rule_info(eqn.instance.rule(*eqn.types)).has_other_kinds
