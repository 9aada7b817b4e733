"""Which results of a program depend on some of its operands, told without tracing anything.

The fixed point over a loop's carries needs this of the body for one set of operands after another;
making the derivative or the split of the body each time would cost a trace each. What is told here
of an op that holds programs of its own (other than calls) is nothing: the answers are lower bounds,
from which loops go on with what the programs themselves say (`loops.grown`).
"""
from __future__ import annotations

from ...ir.ops.derivatives import has_tangent
from ...ir.program import Equation, Program, Var
from .replay import live_equations

Mask = tuple[bool, ...]

# Ops that call a program with their own operands, and the param that holds it.
_CALLED = {"jit": "jaxpr", "checkpoint": "jaxpr", "custom_jvp_call": "call_jaxpr",
           "custom_vjp_call": "call_jaxpr"}
_WITH_RULES = ("custom_jvp_call", "custom_vjp_call")


def reached_results(program: Program, mask: Mask) -> Mask:
    """Results that depend on the operands that `mask` names."""
    found = _named(program, mask)
    for eqn in live_equations(program.eqns, program.outvars):
        if found.isdisjoint(eqn.invars):
            continue
        if not eqn.op.subprograms:
            found.update(eqn.outvars)
        else:
            inner = _called(eqn)
            if inner is not None:
                outs = reached_results(inner, _given(eqn, found))
                found.update(v for v, m in zip(eqn.outvars, outs, strict=True) if m)
    return tuple([a in found for a in program.outvars])


def moving_results(program: Program, mask: Mask) -> Mask:
    """Results that have a tangent where the operands that `mask` names have one."""
    found = _named(program, mask)
    for eqn in program.eqns:
        rule = eqn.op.jvp
        if found.isdisjoint(eqn.invars) or rule == "zero":
            continue
        if eqn.op.subprograms and eqn.op.name not in _WITH_RULES:
            inner = _called(eqn)
            if inner is not None:
                outs = moving_results(inner, _given(eqn, found))
                found.update(v for v, m in zip(eqn.outvars, outs, strict=True) if m)
        elif type(rule) is not tuple or any(
                [a in found and p is not None for a, p in zip(eqn.invars, rule, strict=True)]):
            found.update(v for v in eqn.outvars if has_tangent(v.aval.dtype))
    return tuple([a in found for a in program.outvars])


def _named(program: Program, mask: Mask) -> set[Var]:
    return {v for v, m in zip(program.invars, mask, strict=True) if m}


def _given(eqn: Equation, found: set[Var]) -> Mask:
    return tuple([a in found for a in eqn.invars])


def _called(eqn: Equation) -> Program | None:
    name = _CALLED.get(eqn.op.name)
    inner = None if name is None else eqn.params[name]
    return inner if inner is not None and len(inner.invars) == len(eqn.invars) else None
