"""The values that a `checkpoint` policy saves, and the program that recomputes the rest.

A policy is asked about each equation, including those within loops and branches. A value saved in a
loop leaves it as one more stack; one saved in a branch leaves it as one more result, with zeros
where another branch was taken. The recomputing loop or branch takes these as operands, and computes
no more than it is needed for.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....ir.inference.infer import infer
from ....ir.ops.control.loop_operands import scan_operands, scan_params
from ....ir.program import Atom, Equation, Program, Var
from ..nested.branch_results import assign_slots, with_slots
from ..partial_eval import renamed
from ..replay import evaluate, live_equations, operand, stage

Policy = Callable[..., Any]


class SavedValues(NamedTuple):
    """A program in two parts.

    first: the program, with the saved values after its results. recompute: (operands of the
    program, saved values) -> the wanted ones. values: the saved ones, as variables of `first`.
    """
    first: Program
    recompute: Program
    values: list[Var]


class _Parts(NamedTuple):
    """As `SavedValues`, of an equation that holds programs. recompute: None if all that is wanted
    is saved.
    """
    first: Equation
    recompute: Equation | None
    values: list[Var]


def split_by_policy(program: Program, wanted: Sequence[Atom], policy: Policy) -> SavedValues:
    """Split a program in two: the values that a policy saves, of those from which the `wanted` ones
    are computed, and the program that computes these from them.
    """
    needed: set[Any] = set(wanted)
    values: list[Var] = []
    changed: dict[int, Equation] = {}
    recompute: list[Equation] = []
    for eqn in reversed(program.eqns):
        mask = [v in needed for v in eqn.outvars]
        if not (any(mask) or eqn.effects):
            continue
        # what shows values does so each time that all of them are computed
        if _saves(policy, eqn) and not (eqn.effects and _computed_again(eqn, program, policy)):
            values += [v for v, m in zip(eqn.outvars, mask, strict=True) if m]
            continue
        rule = None if eqn.effects else _INSIDE.get(eqn.op.name)
        parts = None if rule is None else rule(eqn, mask, policy)
        if parts is not None:
            changed[id(eqn)] = parts.first
            values += parts.values
        repeated = eqn if parts is None else parts.recompute
        if repeated is not None:
            recompute.append(repeated)
            needed.update(repeated.invars)
    values = list(dict.fromkeys(reversed(values)))
    names = {v: Var(v.aval, v.name) for v in values}
    return SavedValues(
        program.replace(eqns=[changed.get(id(e), e) for e in program.eqns],
                        outvars=[*program.outvars, *values], result_names=()),
        Program(program.name, [*program.invars, *names.values()],
                [renamed(e, names) for e in reversed(recompute)],
                [names.get(a, a) for a in wanted],              # type: ignore[call-overload]
                consts=program.consts, mesh=program.mesh, level=program.level), values)


def _saves(policy: Policy, eqn: Equation) -> Any:
    return policy(eqn.op, *[a.aval for a in eqn.invars], **eqn.params)


def _computed_again(eqn: Equation, program: Program, policy: Policy) -> bool:
    """Whether all operands are results that are not saved."""
    operands = {a for a in eqn.invars if isinstance(a, Var)}
    makers = [e for e in program.eqns if not operands.isdisjoint(e.outvars)]
    made = {v for e in makers if not _saves(policy, e) for v in e.outvars}
    return bool(operands) and operands <= made


def without_calls(program: Program) -> Program:
    """The program with `jit` equations replaced by those of the programs they call."""
    if not any(e.op.name == "jit" for e in program.eqns):
        return program
    found = program.memo.get("without_calls")
    if found is None:
        def run(*args: Any) -> list[Any]:
            env: dict[Any, Any] = dict(zip(program.invars, args, strict=True))
            env.update(program.consts)
            for eqn in live_equations(program.eqns, program.outvars):
                if eqn.op.name == "jit":
                    outs = evaluate(without_calls(eqn.params["jaxpr"]),
                                    [operand(a, env) for a in eqn.invars])
                else:
                    single = Program(program.name, [v for v in dict.fromkeys(
                        a for a in eqn.invars if isinstance(a, Var))], [eqn], eqn.outvars,
                        mesh=program.mesh)
                    outs = evaluate(single, [env[v] for v in single.invars])
                env.update(zip(eqn.outvars, outs, strict=True))
            return [operand(a, env) for a in program.outvars]

        found = program.memo["without_calls"] = stage(run, program.in_avals, program)
    return found


def used(program: Program) -> set[Atom]:
    """What its equations read, and what it gives."""
    return {a for e in program.eqns for a in e.invars} | set(program.outvars)


# -- loops and branches ----------------------------------------------------------------------------

def _scan(eqn: Equation, mask: Sequence[bool], policy: Policy) -> _Parts | None:
    """A scan that stacks the saved values, and one over these stacks.

    Of the carries the second has those that it needs, whether for the result or for itself.
    """
    params = eqn.params
    nc, nk = scan_operands(params)
    body = without_calls(params["jaxpr"])
    carries, stacks = list(mask[:nk]), [nk + i for i, m in enumerate(mask[nk:]) if m]
    while True:
        places = [*(i for i, c in enumerate(carries) if c), *stacks]
        saved = split_by_policy(body, [body.outvars[i] for i in places], policy)
        read = used(saved.recompute)
        more = [c or v in read for c, v in zip(carries, body.invars[nc:nc + nk], strict=True)]
        if more == carries:
            break
        carries = more
    if not saved.values and all(mask):
        return None
    stacked = dict(zip(reversed(body.outvars[nk:]), reversed(eqn.outvars[nk:]), strict=True))
    extra = [v for v in saved.values if v not in stacked]
    first = _with_results(eqn, {**params, "jaxpr": saved.first.replace(
        outvars=[*body.outvars, *extra])}, len(extra))
    stacked.update(zip(extra, first.outvars[len(eqn.outvars):], strict=True))
    values = [stacked[v] for v in saved.values]
    places = [i for i in places if i < nk or body.outvars[i] not in saved.values]
    second = saved.recompute.replace(outvars=[
        a for i, a in zip([*(i for i, c in enumerate(carries) if c), *stacks],
                          saved.recompute.outvars, strict=True) if i in places])
    read = used(second)
    given = [i for i, v in enumerate(body.invars)
             if (carries[i - nc] if nc <= i < nc + nk else v in read)]
    items = second.invars[len(body.invars):]
    rows = [(v, x) for v, x in zip(items, values, strict=True) if v in read]
    second = second.replace(invars=[*(body.invars[i] for i in given), *(v for v, _ in rows)],
                            arg_names=())
    if not places:
        return _Parts(first, None, values)
    recompute = Equation(eqn.op, [*(eqn.invars[i] for i in given), *(x for _, x in rows)],
                         [eqn.outvars[i] for i in places],
                         {**params, "jaxpr": _anew(second),
                          **scan_params(sum(i < nc for i in given), sum(carries))},
                         eqn.location, eqn.reason)
    return _Parts(first, recompute, values)


def _cond(eqn: Equation, mask: Sequence[bool], policy: Policy) -> _Parts | None:
    """A choice with more results, for what any branch saves, and one that takes these."""
    branches = [without_calls(b) for b in eqn.params["branches"]]
    places = [i for i, m in enumerate(mask) if m]
    saved = [split_by_policy(b, [b.outvars[i] for i in places], policy) for b in branches]
    if len(places) == len(mask) and not any(k.values for k in saved):
        return None
    count = len(mask)
    slots, types = assign_slots([(k.first, range(count, len(k.first.outvars))) for k in saved])
    first = _with_results(eqn, {**eqn.params, "branches": tuple([
        with_slots(k.first, count, s, types) for k, s in zip(saved, slots, strict=True)])},
        len(types))
    values = first.outvars[len(eqn.outvars):]
    second = []
    for k, s in zip(saved, slots, strict=True):
        given = len(k.recompute.invars) - len(k.values)
        own = dict(zip(s.values(), k.recompute.invars[given:], strict=True))
        second.append(_anew(k.recompute.replace(invars=[
            *k.recompute.invars[:given], *(own.get(i) or Var(t) for i, t in enumerate(types))],
            arg_names=())))
    recompute = Equation(eqn.op, [*eqn.invars, *values], [eqn.outvars[i] for i in places],
                     {**eqn.params, "branches": tuple(second)}, eqn.location, eqn.reason)
    return _Parts(first, recompute, list(values))


def _with_results(eqn: Equation, params: dict[str, Any], count: int) -> Equation:
    """The equation with other params, which give it so many more results, if any."""
    if not count:
        return eqn
    types = infer(eqn.op, tuple([a.aval for a in eqn.invars]), params)
    more = [Var(t) for t in types[len(eqn.outvars):]]
    return Equation(eqn.op, eqn.invars, [*eqn.outvars, *more], params, eqn.location, eqn.reason)


def _anew(program: Program) -> Program:
    """The program of equations of its own."""
    return stage(lambda *args: evaluate(program, args), program.in_avals, program)


_INSIDE = {"scan": _scan, "cond": _cond}
