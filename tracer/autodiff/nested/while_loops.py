"""Derivatives of `while` equations: forward only.

Values and tangents go through one loop, whose test looks at the values. Its linearisation is the
whole loop again, with the known carries computed in a loop of their own. It has no transpose, since
the number of iterations is not known.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ....ir.diagnostics.diagnostic import fail
from ....ir.ops.control.loop_operands import while_operands, while_params
from ....ir.ops.control.loops_and_branches import while_p
from ....ir.program import Program, Var
from ..call_rules import PartialEvaluation, register
from ..dependence import moving_results, reached_results
from ..forward import jvp_program
from ..partial_eval import split_program
from .loops import deinterleave, grown, interleave, tangents_given

Params = dict[str, Any]


def while_jvp(operands: Sequence[Any], tangents: Sequence[Any], params: Params
              ) -> tuple[list[Any], list[Any]]:
    """Values and tangents, in one loop; the test looks at the values."""
    going: Program = params["cond_jaxpr"]
    body: Program = params["body_jaxpr"]
    nt, nb = while_operands(params)
    nk = len(body.outvars)
    values, moving = operands[nt:], tangents[nt:]
    mask = grown(tuple(t is not None for t in moving), nb, nk,
                 lambda m, carried: jvp_program(body, m, carried)[1],
                 functools.partial(moving_results, body))
    pushed, out_mask = jvp_program(body, mask, mask[nb:])
    n, ends = nb + nk, (nb, nb + nk)
    key = ("while-jvp", mask, id(going))
    found = body.memo.get(key)
    if found is None:
        step = pushed.replace(
            invars=sum(interleave(pushed.invars[:n], mask, pushed.invars[n:], ends), []))
        more = [Var(t) for t, m in zip(body.out_avals, out_mask, strict=True) if m]
        test = going.replace(invars=[*going.invars, *more], arg_names=())
        found = body.memo[key] = test, step, going        # kept alive: the key has its id
    groups = interleave(values, mask, tangents_given(values, moving, mask), ends)
    results = while_p.bind(*operands[:nt], *sum(groups, []), cond_jaxpr=found[0],
                           body_jaxpr=found[1], **while_params(nt, len(groups[0])))
    return deinterleave(results, out_mask, (nk,))


def while_split(evaluation: PartialEvaluation, operands: Sequence[Any], params: Params
                ) -> list[Any]:
    """The carries that are known, in a loop of their own; the whole loop in the linear program."""
    going: Program = params["cond_jaxpr"]
    body: Program = params["body_jaxpr"]
    nt, nb = while_operands(params)
    nk = len(body.outvars)
    unknown = tuple(map(evaluation.is_unknown, operands))
    mask = grown(unknown[nt:], nb, nk, lambda m, carried: split_program(
        body, m, carried).out_unknown, functools.partial(reached_results, body))
    carried = mask[nb:]
    waiting = evaluation.linear.process(while_p, operands, params)
    test = split_program(going, (*unknown[:nt], *carried))
    if test.out_unknown[0] or all(carried):
        return waiting
    known = split_program(body, mask, carried).known
    steps = known.replace(outvars=known.outvars[:nk - sum(carried)], result_names=())
    test_program = test.known.replace(outvars=test.known.outvars[:1], result_names=())
    given = [x for x, u in zip(operands, (*unknown[:nt], *mask), strict=True) if not u]
    results = iter(while_p.bind(
        *given, cond_jaxpr=test_program, body_jaxpr=steps,
        **while_params(unknown[:nt].count(False), mask[:nb].count(False))))
    return [w if u else next(results) for w, u in zip(waiting, carried, strict=True)]


def while_transpose(cts: Sequence[Any], operands: Sequence[Any], params: Params) -> list[Any]:
    fail(ValueError, "Reverse-mode differentiation does not work for lax.while_loop or "
         "lax.fori_loop with dynamic start/stop values. Try using lax.scan, or using fori_loop "
         "with static start/stop.", code="not-transposable",
         notes=("reverse mode keeps what every iteration computed, so their number must be known",),
         help="or use forward mode (`jvp`, `jacfwd`), or `custom_vjp`")


register("while", jvp=while_jvp, split=while_split, transpose=while_transpose)
