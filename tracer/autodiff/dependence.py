"""Which results of a program depend on given operands, found without tracing.

The fixed point over a loop's carries asks this about the body for one set of operands after
another; differentiating or splitting the body each time would cost a trace each. Calls, loops and
branches are analysed through the programs that they hold. Other ops that hold programs count as
independent, so answers are lower bounds, and loops continue from there with what the derivative
programs themselves say (`loops.grown`).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.ops.control.custom import CALLS
from ...ir.ops.control.loop_operands import scan_operands, while_operands
from ...ir.ops.derivatives import has_tangent
from ...ir.program import Atom, Equation, Program, Var
from ...ir.support.caches import in_memo
from .replay import live_equations

Mask = tuple[bool, ...]

_RULES = {"custom_jvp_call": "jvp_jaxpr_fun", "custom_vjp_call": "fwd_jaxpr_thunk"}


@in_memo
def reached_results(program: Program, mask: Mask) -> Mask:
    """Results that depend on the operands that `mask` names."""
    found = _named(program, mask)
    for eqn in live_equations(program.eqns, program.outvars):
        if found.isdisjoint(eqn.invars):
            continue
        if not eqn.op.subprograms:
            found.update(eqn.outvars)
        else:
            outs = _of_programs(eqn, _mask_of(eqn, found), reached_results)
            found.update([v for v, m in zip(eqn.outvars, outs, strict=True) if m])
    return tuple([a in found for a in program.outvars])


@in_memo
def moving_results(program: Program, mask: Mask) -> Mask:
    """Results that have a tangent where the operands that `mask` names have one."""
    found = _named(program, mask)
    for eqn in program.eqns:
        rule = eqn.op.jvp
        if found.isdisjoint(eqn.invars) or rule == "zero":
            continue
        if eqn.op.name in _RULES:
            if not found.isdisjoint(_differentiated_operands(eqn)):
                found.update([v for v in eqn.outvars if has_tangent(v.aval.dtype)])
        elif eqn.op.subprograms:
            outs = _of_programs(eqn, _mask_of(eqn, found), moving_results)
            found.update([v for v, m in zip(eqn.outvars, outs, strict=True)
                          if m and has_tangent(v.aval.dtype)])
        elif type(rule) is not tuple or any(
                [a in found and p is not None for a, p in zip(eqn.invars, rule, strict=True)]):
            found.update([v for v in eqn.outvars if has_tangent(v.aval.dtype)])
    return tuple([a in found for a in program.outvars])


def _named(program: Program, mask: Mask) -> set[Var]:
    return {v for v, m in zip(program.invars, mask, strict=True) if m}


def _differentiated_operands(eqn: Equation) -> Sequence[Atom]:
    """The operands of a call with a rule of its own whose tangents the rule is for, or refused."""
    params = eqn.params
    end = params["num_consts"]
    closed = len(getattr(params[_RULES[eqn.op.name]], "closed", ()))
    return [*eqn.invars[:end - closed], *eqn.invars[end:]]


def _mask_of(eqn: Equation, found: set[Var]) -> Mask:
    return tuple([a in found for a in eqn.invars])


def _of_programs(eqn: Equation, given: Mask, rule: Callable[[Program, Mask], Mask]) -> Mask:
    """What the programs that an equation holds say of it."""
    name, params = eqn.op.name, eqn.params
    if name in CALLS:
        inner = params[eqn.op.subprograms[0]]
        return rule(inner, given) if len(inner.invars) == len(eqn.invars) else _nothing(eqn)
    if name == "scan":
        return iterated(params["jaxpr"], given, *scan_operands(params), rule)
    if name == "cond":
        if given[0] and rule is reached_results:
            return (True,) * len(eqn.outvars)
        return tuple([any(m) for m in zip(*[rule(b, given[1:]) for b in params["branches"]],
                                          strict=True)])
    if name == "while":
        tests, bodies = while_operands(params)
        carried = iterated(params["body_jaxpr"], given[tests:], bodies, len(eqn.outvars), rule)
        if rule is reached_results and rule(params["cond_jaxpr"], (*given[:tests], *carried))[0]:
            return (True,) * len(eqn.outvars)
        return carried
    return _nothing(eqn)


def _nothing(eqn: Equation) -> Mask:
    return (False,) * len(eqn.outvars)


def iterated(body: Program, given: Mask, first: int, carries: int,
             rule: Callable[[Program, Mask], Mask]) -> Mask:
    """What `rule` gives for a loop over a body: of its carries, what holds in every iteration.

    The carries are the operands from `first` on, and the first results of the body.
    """
    while True:
        results = rule(body, given)
        carried = tuple([a or b for a, b in zip(given[first:first + carries], results[:carries],
                                                strict=True)])
        if carried == given[first:first + carries]:
            return (*carried, *results[carries:])
        given = (*given[:first], *carried, *given[first + carries:])
