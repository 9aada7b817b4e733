"""Hoists collectives of loop-invariant values out of the loop.

A value is invariant if it is computed from the loop's constants alone. An exchange of an invariant
value is moved out, with the equations that compute its operand; other invariant equations stay,
since they cost no communication. A loop that some devices leave earlier than others is not changed:
there, which devices take part in an exchange is part of its meaning. (A pass and not a rewrite:
invariance depends on all equations of a body.)
"""
from __future__ import annotations

from collections.abc import Sequence

from ...ir.op import Op
from ...ir.program import Atom, Equation, Literal, Program, Var
from ..reasons import merged_reasons


def exchanges(op: Op) -> bool:
    """Is it a collective that moves bytes?"""
    return op.collective is not None and bool(op.collective.kind)


def hoist(program: Program) -> Program:
    """A LOCAL program with invariant collectives of its own loops in front of them."""
    if not program.holds_programs:
        return program
    eqns: list[Equation] = []
    for eqn in program.eqns:
        eqns.extend(_hoisted(eqn) if eqn.op.name in ("scan", "while") else [eqn])
    return program if len(eqns) == len(program.eqns) else program.replace(eqns=eqns)


def _hoisted(eqn: Equation) -> Sequence[Equation]:
    """The equations that leave the loop, then the loop."""
    params = eqn.params
    if eqn.op.name == "scan":
        if params["length"] < 2:
            return [eqn]
        name, first, count = "jaxpr", 0, params["num_consts"]
    else:
        if params["cond_jaxpr"].outvars[0].aval.varying:
            return [eqn]
        name, first, count = "body_jaxpr", params["cond_nconsts"], params["body_nconsts"]
    body: Program = params[name]
    outer: dict[Atom, Atom] = dict(zip(body.invars[:count], eqn.invars[first:first + count],
                                       strict=True))
    leaving = _leaving(body, set(outer))
    if not leaving:
        return [eqn]
    out: list[Equation] = []
    for e in leaving:
        new = [Var(v.aval, v.name) for v in e.outvars]
        reason = e.reason
        if exchanges(e.op):
            reason = merged_reasons((reason, f"the same in every iteration of `{eqn.op.name}`"))
        out.append(e.replace(invars=[outer.get(a, a) for a in e.invars], outvars=new,
                             reason=reason))
        outer.update(zip(e.outvars, new, strict=True))
    gone = set(leaving)
    rest = [e for e in body.eqns if e not in gone]
    read = {a for e in rest for a in e.invars} | set(body.outvars)
    made = [v for e in leaving for v in e.outvars if v in read]
    remaining = [i for i in range(count) if body.invars[i] in read]
    parameters = [*(body.invars[i] for i in remaining), *(Var(v.aval, v.name) for v in made)]
    become: dict[Atom, Atom] = dict(zip(made, parameters[len(remaining):], strict=True))
    if become:
        rest = [e.replace(invars=[become.get(a, a) for a in e.invars])
                if any(a in become for a in e.invars) else e for e in rest]
    names = body.arg_names
    if len(names) == len(body.invars):
        names = (*(names[i] for i in remaining), *("" for _ in made), *names[count:])
    new_body = body.replace(invars=[*parameters, *body.invars[count:]], eqns=rest, arg_names=names,
                            outvars=[become.get(a, a) for a in body.outvars])
    operands = [*eqn.invars[:first], *(eqn.invars[first + i] for i in remaining),
                *(outer[v] for v in made), *eqn.invars[first + count:]]
    number = "num_consts" if eqn.op.name == "scan" else "body_nconsts"
    out.append(eqn.replace(invars=operands, params={
        **params, name: new_body, number: len(parameters)}))
    return out


def _leaving(body: Program, invariant: set[Atom]) -> list[Equation]:
    """Invariant exchanges of a body and what they are computed by, in order."""
    if not any([exchanges(op) for op in body.ops]):
        return []
    candidates: list[Equation] = []
    wanted: set[Atom] = set()
    for eqn in body.eqns:
        if eqn.op.effect or eqn.op.subprograms or not all(
                [isinstance(a, Literal) or a in invariant for a in eqn.invars]):
            continue
        candidates.append(eqn)
        invariant.update(eqn.outvars)
        if exchanges(eqn.op):
            wanted.update(eqn.outvars)
    if not wanted:
        return []
    leaving: list[Equation] = []
    for eqn in reversed(candidates):
        if any(v in wanted for v in eqn.outvars):
            leaving.append(eqn)
            wanted.update(eqn.invars)
    return leaving[::-1]
