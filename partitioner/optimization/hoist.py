"""Hoists loop-invariant work out of loops: exchanges, and arithmetic that needs no more memory.

An exchange of an invariant value runs once, before the loop, be it in a branch there or not. So
does arithmetic on invariants, as in XLA, provided its results take no more memory than its
operands: the loop holds the results from then on. In a branch, which may not be taken, it stays.
"""
from __future__ import annotations

from ...ir.op import Op
from ...ir.program import Equation, Literal, Program
from ...ir.reasons import SAME_IN_ALL, Reason
from ...ir.rewriting.hoist import hoist
from ..cost.kinds import by_types
from ..cost.operations import equation_flops
from ..reasons import merged_reasons, written


def exchanges(op: Op) -> bool:
    """Is the op a collective that moves bytes?"""
    return op.collective is not None and bool(op.collective.kind)


def hoist_invariants(program: Program) -> Program:
    """A LOCAL program with the invariant work of its own loops moved in front of them."""
    return hoist(program, _is_worth_it, lambda eqn: exchanges(eqn.op), _reason)


@by_types
def _is_worth_it(eqn: Equation) -> bool:
    return exchanges(eqn.op) or equation_flops(eqn) > 0 and sum(
        [v.aval.local_nbytes for v in eqn.outvars]) <= sum(
        [a.aval.local_nbytes for a in eqn.invars if type(a) is not Literal])


def _reason(eqn: Equation, loop: Equation) -> Reason:
    if not exchanges(eqn.op):
        return eqn.reason
    return merged_reasons((eqn.reason or written(eqn.op.name),
                           (SAME_IN_ALL(loop.op.name),)))
