"""Common subexpressions: equal equations of a per-device program are computed once."""
from __future__ import annotations

from ...ir.op import Op
from ...ir.ops.communication.collective import axis_index_p
from ...ir.program import Atom, Equation, Program
from ..reasons import merged_reasons


def dedupe(program: Program, but: frozenset[Op] = frozenset()) -> Program:
    """A LOCAL program (without nested ones) that computes equal equations once. but: ops to leave
    alone.
    """
    # each is a new value, except for the position of a device
    pure = {op for op in program.ops if not op.effect and not op.subprograms} - but
    computed = [(e.instance.identity, e.invars) for e in program.eqns if e.op in pure
                and (e.invars or e.op is axis_index_p)]
    if len(set(computed)) == len(computed):
        return program
    eqns: list[Equation] = []
    now: dict[Atom, Atom] = {}                # variable to the one that replaces it
    seen: dict[tuple, int] = {}               # what an equation computes, to its number
    for eqn in program.eqns:
        if now and not now.keys().isdisjoint(eqn.invars):
            eqn = eqn.replace(invars=tuple([now.get(a, a) for a in eqn.invars]))
        op = eqn.op
        if op in pure and (eqn.invars or op is axis_index_p):
            count = len(eqns)
            number = seen.setdefault((eqn.instance.identity, eqn.invars), count)
            if number < count:
                first = eqns[number]
                now.update(zip(eqn.outvars, first.outvars, strict=True))
                if eqn.reason and eqn.reason != first.reason:
                    eqns[number] = first.replace(
                        reason=merged_reasons((*[(c,) for c in first.reason], eqn.reason)))
                continue
        eqns.append(eqn)
    if not now:
        return program
    return program.replace(eqns=eqns, outvars=[now.get(a, a) for a in program.outvars])
