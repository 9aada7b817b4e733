"""Derivatives of `jit` equations: a call stays one call.

The derivative of a call is a call of the derivative. In reverse mode the called program is split in
two, and the residuals that the second part needs are further results of the first. The programs are
made once per called program.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ....ir.op import Op
from ....ir.ops.control.call import jit_p
from ....ir.program import Program
from ..call_rules import PartialEvaluation, register
from ..forward import jvp_program, weak_flags
from ..partial_eval import split_program
from ..transpose import is_linear, transpose_program


def call_jvp(op: Op, operands: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
             ) -> tuple[list[Any], list[Any]]:
    """Values and tangents of a call of the program `params["jaxpr"]`."""
    program: Program = params["jaxpr"]
    mask = tuple(t is not None for t in tangents)
    pushed, out_mask = jvp_program(program, mask, weak=weak_flags(tangents))
    results = op.bind(*operands, *(t for t in tangents if t is not None),
                         **{**params, "jaxpr": pushed})
    count = len(program.outvars)
    rest = iter(results[count:])
    return list(results[:count]), [next(rest) if m else None for m in out_mask]


def call_split(evaluation: PartialEvaluation, operands: Sequence[Any], params: dict[str, Any]
               ) -> list[Any]:
    """The known part of a call now, the rest as a call in the linear program."""
    unknown = tuple(evaluation.is_unknown(x) for x in operands)
    split = split_program(params["jaxpr"], unknown)
    known = [x for x, u in zip(operands, unknown, strict=True) if not u]
    results: list[Any] = []
    if split.known.outvars:
        results = jit_p.bind(*known, **{**params, "jaxpr": split.known})
    residuals = [known[i] if kind == "operand" else results[i] for kind, i in split.residuals]
    waiting: list[Any] = []
    if any(split.out_unknown):
        waiting = evaluation.linear.process(
            jit_p, [*residuals, *(x for x, u in zip(operands, unknown, strict=True) if u)],
            {**params, "jaxpr": split.linear})
    first, second = iter(results), iter(waiting)
    return [next(second) if u else next(first) for u in split.out_unknown]


def call_transpose(op: Op, cts: Sequence[Any], operands: Sequence[Any], params: dict[str, Any],
                   changed: Callable[[Program, int, dict[str, Any]], Program] | None = None
                   ) -> list[Any]:
    """The cotangents of a call's operands, by a call of the transposed program.

    changed: from that program, the number of its operands that are no cotangents, and the params of
    the call, to the program that is called.
    """
    linear = tuple(map(is_linear, operands))
    back, out_mask = transpose_program(params["jaxpr"], linear,
                                       tuple(ct is not None for ct in cts), weak=weak_flags(cts))
    results: Sequence[Any] = ()
    if any(out_mask):
        values = [x for x in operands if not is_linear(x)]
        if changed is not None:
            back = changed(back, len(values), params)
        results = op.bind(*values, *(ct for ct in cts if ct is not None),
                          **{**params, "jaxpr": back})
    found, has = iter(results), iter(out_mask)
    return [next(found) if m and next(has) else None for m in linear]


register("jit", jvp=functools.partial(call_jvp, jit_p), split=call_split,
         transpose=functools.partial(call_transpose, jit_p))
