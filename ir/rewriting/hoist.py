"""Hoists loop-invariant values out of loops.

A value is invariant if it is computed from the loop's constants alone. If it is worth it, it is
moved in front of the loop with all that it is computed from, and becomes a constant of the loop. So
is what a branch in the loop computes of these, if it is worth it even where the branch is seldom
taken. A loop that some devices leave earlier than others stays as it is, as does a branch that only
some of them take: which devices take part in an exchange is part of its meaning. (A pass and not a
rewrite: invariance depends on all equations of a body.)
"""
from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from ..facts import BRANCHES
from ..ops.control.loop_operands import scan_operands, while_operands
from ..program import Atom, Equation, Literal, Program, Var
from ..reasons import Reason

Worth = Callable[[Equation], bool]


def hoist(program: Program, worth: Worth, worth_in_branches: Worth,
          reason: Callable[[Equation, Equation], Reason]) -> Program:
    """The program with invariants of its own loops moved in front of them, where worth it.

    worth_in_branches: of what branches in loops compute. reason: why an equation is there, of it
    and the loop.
    """
    if not program.holds_programs:
        return program
    eqns: list[Equation] = []
    for eqn in program.eqns:
        eqns.extend(_hoisted(eqn, worth, worth_in_branches, reason)
                    if eqn.op.name in ("scan", "while") else [eqn])
    return program if len(eqns) == len(program.eqns) else program.replace(eqns=eqns)


def _hoisted(eqn: Equation, worth: Worth, worth_in_branches: Worth,
             reason: Callable[[Equation, Equation], Reason]) -> Sequence[Equation]:
    """The equations that leave the loop, then the loop."""
    params = eqn.params
    if eqn.op.name == "scan":
        if params["length"] < 2:
            return [eqn]
        name, number, first, count = "jaxpr", "num_consts", 0, scan_operands(params).consts
    else:
        if params["cond_jaxpr"].outvars[0].aval.varying:
            return [eqn]
        name, number, (first, count) = "body_jaxpr", "body_nconsts", while_operands(params)
    body: Program = _out_of_branches(params[name], count, worth_in_branches)
    outer: dict[Atom, Atom] = dict(zip(body.invars[:count], eqn.invars[first:first + count],
                                       strict=True))
    leaving = _leaving(body, set(outer), worth)
    if not leaving:
        return [eqn]
    out = _outside(leaving, outer, lambda e: reason(e, eqn))
    rest, read, made = _without(body, leaving)
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
    out.append(eqn.replace(invars=operands, params={
        **params, name: new_body, number: len(parameters)}))
    return out


def _outside(leaving: Sequence[Equation], outer: dict[Atom, Atom],
             reason: Callable[[Equation], Reason]) -> list[Equation]:
    """Equations of a body as they stand in front of it. outer: values of the body to those there;
    extended by their results.
    """
    out: list[Equation] = []
    for e in leaving:
        new = [Var(v.aval, v.name) for v in e.outvars]
        out.append(e.replace(invars=[outer.get(a, a) for a in e.invars], outvars=new,
                             reason=reason(e)))
        outer.update(zip(e.outvars, new, strict=True))
    return out


def _without(body: Program, leaving: Sequence[Equation]
             ) -> tuple[list[Equation], set[Atom], list[Var]]:
    """(the equations of a body without those that leave it, what is read there, and what of that
    those make).
    """
    gone = {*leaving}
    rest = [e for e in body.eqns if e not in gone]
    read = {a for e in rest for a in e.invars} | {*body.outvars}
    return rest, read, [v for e in leaving for v in e.outvars if v in read]


def _out_of_branches(body: Program, count: int, worth: Worth) -> Program:
    """The body of a loop, whose first `count` parameters are its constants, with invariants of its
    branches moved in front of these.
    """
    eqns: list[Equation] = []
    invariant: set[Atom] = {*body.invars[:count]}
    for eqn in body.eqns:
        if BRANCHES in eqn.op.facts and not eqn.invars[0].aval.varying:
            eqns += _out_of_branch(eqn, invariant, worth)
        else:
            eqns.append(eqn)
            if _is_invariant(eqn, invariant):
                invariant.update(eqn.outvars)
    return body if len(eqns) == len(body.eqns) else body.replace(eqns=eqns)


def _is_invariant(eqn: Equation, invariant: Set[Atom]) -> bool:
    """Is it computed from invariants alone?"""
    if eqn.op.effect or eqn.op.subprograms:
        return False
    for a in eqn.invars:
        if a not in invariant and type(a) is not Literal:
            return False
    return True


def _out_of_branch(eqn: Equation, invariant: Set[Atom], worth: Worth) -> Sequence[Equation]:
    """The equations that leave the branches, then the choice between these."""
    index, *operands = eqn.invars
    branches: list[Program] = [*eqn.params["branches"]]
    out: list[Equation] = []
    for k in range(len(branches)):
        branch = branches[k]
        outer: dict[Atom, Atom] = {p: a for p, a in zip(branch.invars, operands, strict=True)
                                   if a in invariant}
        leaving = _leaving(branch, {*outer}, worth)
        if not leaving:
            continue
        out += _outside(leaving, outer, lambda e: e.reason)
        rest, _, made = _without(branch, leaving)
        branches = [_with_parameters(b, made, named=i != k) for i, b in enumerate(branches)]
        branches[k] = branches[k].replace(eqns=rest)
        operands += [outer[v] for v in made]
    return [*out, eqn.replace(invars=[index, *operands], params={
        **eqn.params, "branches": tuple(branches)})] if out else [eqn]


def _with_parameters(program: Program, more: Sequence[Var], named: bool) -> Program:
    """The program with more parameters: of these types, or these variables themselves. named: as
    new variables.
    """
    parameters = [Var(v.aval, v.name) for v in more] if named else more
    names = program.arg_names
    if len(names) == len(program.invars):
        names = (*names, *("" for _ in more))
    return program.replace(invars=[*program.invars, *parameters], arg_names=names)


def _leaving(body: Program, invariant: set[Atom], worth: Worth) -> list[Equation]:
    """What is invariant in a body and worth it, and what that is computed by, in order."""
    candidates: list[Equation] = []
    for eqn in body.eqns:
        if _is_invariant(eqn, invariant):
            candidates.append(eqn)
            invariant.update(eqn.outvars)
    wanted: set[Atom] = set()
    for eqn in candidates:
        if worth(eqn):
            wanted.update(eqn.outvars)
    if not wanted:
        return []
    leaving: list[Equation] = []
    for eqn in reversed(candidates):
        if any(v in wanted for v in eqn.outvars):
            leaving.append(eqn)
            wanted.update(eqn.invars)
    return leaving[::-1]
