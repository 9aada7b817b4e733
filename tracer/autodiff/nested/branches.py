"""Derivatives of `cond` equations: the derivative of the branch that is taken.

Branches must agree on their results, so a result has a tangent, or is unknown, if it has one or is
so in any of them. When a `cond` is split in two, each branch returns the residuals that its second
part needs, in slots that they share (branch_results.py).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.ops.control.loops_and_branches import cond_p
from ....ir.program import Program, Var
from ....ir.values.typeof import typeof
from ..call_rules import PartialEvaluation, register
from ..forward import Mask, jvp_program, matching
from ..partial_eval import split_program, unknown_results
from ..transpose import is_linear, transpose_program
from .branch_results import assign_slots, with_slots

Params = dict[str, Any]


def _either(masks: Sequence[Mask]) -> Mask:
    return tuple(map(any, zip(*masks, strict=True)))


def cond_jvp(operands: Sequence[Any], tangents: Sequence[Any], params: Params
             ) -> tuple[list[Any], list[Any]]:
    """Values and tangents of the branch that is taken."""
    branches: tuple[Program, ...] = params["branches"]
    mask = tuple(t is not None for t in tangents[1:])
    out_mask = _either([jvp_program(b, mask)[1] for b in branches])
    pushed = tuple(jvp_program(b, mask, out_mask)[0] for b in branches)
    given = [matching(t, typeof(x)) for x, t in zip(operands[1:], tangents[1:], strict=True)
             if t is not None]
    results = cond_p.bind(*operands, *given, **{**params, "branches": pushed})
    count = len(out_mask)
    rest = iter(results[count:])
    return list(results[:count]), [next(rest) if m else None for m in out_mask]


# -- the split -------------------------------------------------------------------------------------

def cond_split(evaluation: PartialEvaluation, operands: Sequence[Any], params: Params
               ) -> list[Any]:
    """The known part of the branches now, the rest as a choice in the linear program."""
    index, *values = operands
    if evaluation.is_unknown(index):
        return evaluation.linear.process(cond_p, operands, params)
    unknown = tuple(map(evaluation.is_unknown, values))
    first, second, kept, out_unknown = _cut(params["branches"], unknown)
    known = [x for x, u in zip(values, unknown, strict=True) if not u]
    results: Sequence[Any] = []
    if first[0].outvars:
        results = cond_p.bind(index, *known, **{**params, "branches": first})
    plain = sum(not u for u in out_unknown)
    waiting: list[Any] = []
    if any(out_unknown):
        waiting = evaluation.linear.process(
            cond_p, [index, *(known[i] for i in kept), *results[plain:],
                     *(x for x, u in zip(values, unknown, strict=True) if u)],
            {**params, "branches": second})
    now, later = iter(results), iter(waiting)
    return [next(later) if u else next(now) for u in out_unknown]


def _cut(branches: tuple[Program, ...], unknown: Mask
         ) -> tuple[tuple[Program, ...], tuple[Program, ...], list[int], Mask]:
    """Known branches, linear ones, the known operands that these take, and unknown results.

    Known branches give known results, then residuals; linear ones take known operands, residuals,
    then the unknown operands.
    """
    key = ("cond-cut", unknown, tuple(map(id, branches)))
    found = branches[0].memo.get(key)
    if found is not None:
        return found[0]
    out_unknown = _either([unknown_results(b, unknown) for b in branches])
    splits = [split_program(b, unknown, out_unknown, forward=False) for b in branches]
    kept = sorted({i for s in splits for kind, i in s.residuals if kind == "operand"})
    slots, types = assign_slots([(s.known, dict.fromkeys(
        [i for kind, i in s.residuals if kind == "result"])) for s in splits])
    plain = sum(not u for u in out_unknown)
    first = tuple(with_slots(s.known, plain, own, types)
                  for s, own in zip(splits, slots, strict=True))
    operand_types = [t for t, u in zip(branches[0].in_avals, unknown, strict=True) if not u]
    second = []
    for s, slot_of in zip(splits, slots, strict=True):
        own: dict[tuple[str, int], Var] = {}
        for (kind, i), var in zip(s.residuals, s.linear.invars, strict=False):
            own[(kind, i) if kind == "operand" else ("slot", slot_of[i])] = var
        params = [own.get(("operand", i)) or Var(operand_types[i]) for i in kept]
        params += [own.get(("slot", k)) or Var(t) for k, t in enumerate(types)]
        second.append(s.linear.replace(
            invars=[*params, *s.linear.invars[len(s.residuals):]], arg_names=()))
    result = first, tuple(second), kept, out_unknown
    branches[0].memo[key] = (result, branches)       # kept alive: the key has their ids
    return result


# -- transposition ---------------------------------------------------------------------------------

def cond_transpose(cts: Sequence[Any], operands: Sequence[Any], params: Params) -> list[Any]:
    """The transpose of the branch that was taken."""
    index, *values = operands
    linear = tuple(map(is_linear, values))
    given = tuple(ct is not None for ct in cts)
    branches: tuple[Program, ...] = params["branches"]
    out_mask = _either([transpose_program(b, linear, given)[1] for b in branches])
    found: Any = iter(())
    if any(out_mask):
        back = tuple(transpose_program(b, linear, given, out_mask)[0] for b in branches)
        found = iter(cond_p.bind(index, *(x for x in values if not is_linear(x)),
                                 *(ct for ct in cts if ct is not None),
                                 **{**params, "branches": back}))
    has = iter(out_mask)
    return [None, *(next(found) if m and next(has) else None for m in linear)]


register("cond", jvp=cond_jvp, split=cond_split, transpose=cond_transpose)
