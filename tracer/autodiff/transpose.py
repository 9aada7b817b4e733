"""Transposition: a linear program run backward.

Equations that depend on a linear operand are visited in reverse; the op's `transpose` turns the
cotangents of its results into those of its operands, and cotangents of a value used twice are
added. The cotangent of a value has its type with unreduced and reduced axes swapped, so the sums
over devices that a gradient needs appear by themselves. Other equations are computed first.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.op import LinearOperand
from ...ir.ops.derivatives import add_any, cotangent_type
from ...ir.program import Equation, Literal, Program, Var
from ...ir.settings.context import STATE
from ...ir.types import ArrayType
from .call_rules import CALL_RULES
from .forward import Mask, matching, with_weakness, zero_tangent
from .replay import Replay, Scalar, live_equations, operand, process, stage
from .rule_memo import rule_memo


def backward(program: Program, operands: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    """Cotangents of the operands in which a program is linear.

    operands: values, None for those that are linear. cts: of the results, None where zero.
    The answer has an item per operand: None where it is zero, and for operands with values.
    """
    env: dict[Var, Any] = dict(program.consts)
    linear: set[Var] = set()
    for v, x in zip(program.invars, operands, strict=True):
        if x is None:
            linear.add(v)
        else:
            env[v] = x
    with Replay("transpose", STATE.interpreter) as at:
        at.name_meshes(program)
        visited = _linear_equations(program, linear)
        _compute_others(program, visited, linear, env, at)
        rules = rule_memo("transpose", STATE.interpreter)
        found: dict[Var, Any] = {}
        for a, ct in zip(program.outvars, cts, strict=True):
            if a in linear:
                _accumulate(found, a, ct)
        for eqn in reversed(visited):
            outvars = eqn.outvars
            if len(outvars) == 1:
                given = [found.pop(outvars[0], None)]
                if given[0] is None:
                    continue
            else:
                given = [found.pop(v, None) for v in outvars]
                if all([ct is None for ct in given]):
                    continue
            location = at(eqn)
            arguments = [LinearOperand(a.aval) if a in linear else
                         Scalar(a) if isinstance(a, Literal) else env[a]
                         for a in eqn.invars]
            if rules is None:
                back = transpose_equation(eqn, arguments, given)
            else:
                back = rules.apply(
                    eqn, [*arguments, *given], location,
                    lambda e=eqn, xs=arguments, cts=given: transpose_equation(e, xs, cts))
            for a, ct in zip(eqn.invars, back, strict=True):
                if ct is not None and a in linear:
                    if a not in found:
                        found[a] = ct
                        continue
                    if not a.aval.mesh.empty:
                        STATE.abstract_mesh = a.aval.mesh       # the equation may lead to another
                    _accumulate(found, a, ct)
    return [found.get(v) if x is None else None
            for v, x in zip(program.invars, operands, strict=True)]


def _linear_equations(program: Program, linear: set[Var]) -> list[Equation]:
    """The equations on the way from linear operands to results; their results enter `linear`."""
    out = []
    for eqn in live_equations(program.eqns, program.outvars):
        if not linear.isdisjoint(eqn.invars):
            linear.update(eqn.outvars)
            out.append(eqn)
    return out


def _compute_others(program: Program, visited: list[Equation], linear: set[Var],
                    env: dict[Var, Any], at: Replay) -> None:
    """Compute, into `env`, what the visited equations read and what does not depend on linear
    operands.
    """
    others = [e for e in program.eqns if linear.isdisjoint(e.invars)]
    if not others:
        return
    wanted = [a for e in visited for a in e.invars if a not in linear]
    for eqn in live_equations(others, wanted):
        at(eqn)
        results = process(eqn.op, [operand(a, env) for a in eqn.invars], eqn.params)
        env.update(zip(eqn.outvars, results, strict=True))


def transpose_equation(eqn: Equation, operands: Sequence[Any], cts: Sequence[Any]) -> Sequence[Any]:
    """Cotangents of the operands of one equation, by its op's rule."""
    op = eqn.op
    rule = CALL_RULES.get(op.name)
    if rule is not None and rule.transpose is not None:
        return rule.transpose(cts, operands, eqn.params)
    if op.transpose is None:
        fail(NotImplementedError, f"Transpose rule (for reverse-mode differentiation) for "
             f"'{op.name}' not implemented", code="not-transposable", location=eqn.location,
             notes=(f"`{op.name}` is used here as a linear function of its operand",),
             help="give the derivative with `custom_vjp`, or use forward mode (`jvp`, `jacfwd`)")
    return op.transpose(list(cts) if op.multiple_results else cts[0], *operands, **eqn.params)


def _accumulate(found: dict[Var, Any], v: Var, ct: Any) -> None:
    if ct is not None:
        have = found.get(v)
        found[v] = ct if have is None else add_any(have, ct)


def zero_cotangent(t: ArrayType) -> Any:
    """Zeros of the cotangent type of a value of type t; float0 for integers."""
    return zero_tangent(weak_cotangent_type(t))


def weak_cotangent_type(t: ArrayType) -> ArrayType:
    """`cotangent_type`, weak if `t` is: what bodies of loops and branches take and give."""
    want = cotangent_type(t)
    return want.update(weak_type=True) if t.weak_type else want


def transpose_program(program: Program, linear: Mask, given: Mask,
                      instantiate: bool | Mask = False, weak: Mask | None = None
                      ) -> tuple[Program, Mask]:
    """The program from the other operands and the cotangents of results to those of the linear
    operands, and which of these have one.

    linear: operands in which `program` is linear. given: results that have a cotangent.
    instantiate: linear operands (in order) that shall have one though it be zero (True: all).
    weak: a flag per given cotangent, whether its type is weak (default: as the result's).
    """
    key = ("transpose", linear, given, instantiate, weak)
    found = program.memo.get(key)
    if found is not None:
        return found
    types = [v.aval for v, m in zip(program.invars, linear, strict=True) if m]
    forced = (instantiate,) * len(types) if isinstance(instantiate, bool) else instantiate
    out_mask: list[bool] = []
    if any(forced):
        plain = program.memo.get(("transpose", linear, given, False, weak))
        if plain is not None and all(
                [m or not f for m, f in zip(plain[1], forced, strict=True)]):
            return plain                 # it has all the cotangents that are asked for

    def run(*args: Any) -> list[Any]:
        values = iter(args)
        operands = [None if m else next(values) for m in linear]
        cts = [next(values) if g else None for g in given]
        found = backward(program, operands, cts)
        results = [ct for ct, m in zip(found, linear, strict=True) if m]
        for i, (ct, t, force) in enumerate(zip(results, types, forced, strict=True)):
            if ct is None and force:
                ct = zero_cotangent(t)
            results[i] = None if ct is None else matching(ct, t)
            out_mask.append(ct is not None)
        return [ct for ct in results if ct is not None]

    outer = [t for t, m in zip(program.in_avals, linear, strict=True) if not m]
    ct_types = [weak_cotangent_type(a.aval)
                for a, g in zip(program.outvars, given, strict=True) if g]
    new = stage(run, [*outer, *with_weakness(ct_types, weak)], program)
    found = program.memo[key] = new, tuple(out_mask)
    return found


def is_linear(x: Any) -> bool:
    """Whether an operand given to a transpose rule is one whose cotangent is wanted."""
    return isinstance(x, LinearOperand)


