"""Equations in the order in which XLA visits them: from the results back, operands first.

XLA keeps a graph, not a list. Shardy settles conflicts in the order in which it meets them, and it
gets the graph in this order: the gradient of the first weight comes after all that it needs, and
gradients that nothing else needs come last.
"""
from __future__ import annotations

from ....ir.program import Atom, Equation, Program
from ....ir.rewriting.inside import inside


def in_visit_order(program: Program) -> Program:
    """The program, nested ones included, with each equation after those that it needs, the first
    operand's first. What is seen on the host stays in order, and so does all else beside it.
    """
    program = inside(program, in_visit_order)
    if program.effects:
        return program
    made: dict[Atom, Equation] = {v: eqn for eqn in program.eqns for v in eqn.outvars}
    eqns: dict[Equation, None] = {}
    stack = [made[a] for a in reversed(program.outvars) if a in made]
    while stack:
        eqn = stack[-1]
        missing = [made[a] for a in eqn.invars if a in made and made[a] not in eqns]
        if missing and eqn not in eqns:
            stack += reversed(missing)
        else:
            eqns[stack.pop()] = None
    return program.replace(eqns=[*eqns])
