"""Broadcasts of elementwise operands as equations of their own, for the plan that XLA makes.

`x[:, None] - x[None]` repeats both operands along a dimension of size one. JAX lowers it to two
broadcasts and a subtraction of whole arrays. Each of these has a layout and may be moved, which
affects XLA's plan.
"""
from __future__ import annotations

from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.program import Atom, Equation, Program, Var
from ...ir.rewriting.inside import inside
from ...ir.rules.rule import ELEMENTWISE


def broadcast_operands(program: Program) -> Program:
    """The program, nested ones included, with the operands of elementwise equations broadcast to
    the shape of the result beforehand.
    """
    program = inside(program, broadcast_operands)
    eqns: list[Equation] = []
    for eqn in program.eqns:
        if eqn.op.rule == ELEMENTWISE:
            shape = eqn.outvars[0].aval.shape
            operands: list[Atom] = []
            for x in eqn.invars:
                if len(x.aval.shape) == len(shape) and x.aval.shape != shape:
                    whole = Var(x.aval.update(shape=shape))
                    params = {"shape": shape, "broadcast_dimensions": tuple(range(len(shape))),
                              "sharding": None}
                    eqns.append(Equation(broadcast_in_dim_p, (x,), (whole,), params, eqn.location))
                    x = whole
                operands.append(x)
            if any([x is not y for x, y in zip(operands, eqn.invars, strict=True)]):
                eqn = eqn.replace(invars=operands)
        eqns.append(eqn)
    return program if len(eqns) == len(program.eqns) else program.replace(eqns=eqns)
