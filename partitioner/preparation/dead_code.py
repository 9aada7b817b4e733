"""Dead code elimination: unread equations, and loop carries and stacks that nothing reads.

It runs before propagation, so that dead equations do not influence layouts.
"""
from __future__ import annotations

from ...ir.ops.control.loop_operands import scan_operands, scan_params
from ...ir.program import Atom, Equation, Program, Var
from ...ir.rewriting.unread import drop_dead


def drop_unread(program: Program) -> Program:
    """The program without unread equations, in bodies of scans too; effects on the host stay."""
    if not program.holds_programs:
        return drop_dead(program)
    read: set[Atom] = {*program.outvars}
    eqns: list[Equation] = []
    changed = False
    for eqn in reversed(program.eqns):
        results = eqn.outvars
        if results and results[0] not in read and read.isdisjoint(results) and not eqn.effects:
            changed = True
            continue
        if eqn.op.subprograms:
            whole, eqn = eqn, _narrowed(eqn, read)
            changed = changed or eqn is not whole
        eqns.append(eqn)
        read.update(eqn.invars)
    return program.replace(eqns=eqns[::-1]) if changed else program


def _narrowed(eqn: Equation, read: set[Atom]) -> Equation:
    """A scan with only those results that are read, and what these need."""
    if eqn.op.name != "scan" or eqn.effects:
        return eqn
    params = eqn.params
    body: Program = params["jaxpr"]
    consts, carries = scan_operands(params)
    live = [v in read for v in eqn.outvars]
    while True:
        small = drop_unread(body if all(live) else body.replace(outvars=[
            v for v, wanted in zip(body.outvars, live, strict=True) if wanted]))
        used = {*small.outvars}.union(*[e.invars for e in small.eqns])
        more = [k for k in range(carries) if not live[k] and body.invars[consts + k] in used]
        if not more:
            break
        for k in more:
            live[k] = True
    taken = [k for k, v in enumerate(body.invars)
             if (live[k - consts] if consts <= k < consts + carries else v in used)]
    if all(live) and len(taken) == len(body.invars) and len(small.eqns) == len(body.eqns):
        return eqn
    names = body.arg_names
    small = small.replace(
        invars=[body.invars[k] for k in taken], result_names=(),
        arg_names=[names[k] for k in taken] if len(names) == len(body.invars) else ())
    outvars: list[Var] = [v for v, wanted in zip(eqn.outvars, live, strict=True) if wanted]
    return eqn.replace(invars=[eqn.invars[k] for k in taken], outvars=outvars, params={
        **params, "jaxpr": small,
        **scan_params(sum(k < consts for k in taken), sum(live[:carries]))})
