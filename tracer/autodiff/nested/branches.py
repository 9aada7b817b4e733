"""Derivatives of `cond` equations: the derivative of the branch that is taken.

Branches must agree on their results, so a result has a tangent, or is unknown, if it has one or is
so in any of them. When a `cond` is split in two, each branch returns the residuals that its second
part needs. The equation has room for the residuals of every branch, shared between branches where
types are equal, and filled with zeros where the branch taken has none.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.op import LinearOperand
from ....ir.ops.control.loops_and_branches import cond_p
from ....ir.ops.derivatives import full_like
from ....ir.program import Program, Var
from ....ir.types import ArrayType
from ....ir.values.typeof import typeof
from ..forward import Mask, jvp_program, matching
from ..partial_eval import Split, split_program, unknown_results
from ..replay import evaluate, stage
from ..transpose import is_linear, transpose_program
from .rules import PartialEvaluation, register

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
    room: list[ArrayType] = []             # types of the residuals
    places = [_places(s, room) for s in splits]
    plain = sum(not u for u in out_unknown)
    first = tuple(_with_room(s.known, plain, p, room)
                  for s, p in zip(splits, places, strict=True))
    operand_types = [t for t, u in zip(branches[0].in_avals, unknown, strict=True) if not u]
    second = []
    for s, p in zip(splits, places, strict=True):
        own: dict[tuple[str, int], Var] = {}
        for (kind, i), var in zip(s.residuals, s.linear.invars, strict=False):
            own[(kind, i) if kind == "operand" else ("room", p[i])] = var
        params = [own.get(("operand", i)) or Var(operand_types[i]) for i in kept]
        params += [own.get(("room", k)) or Var(t) for k, t in enumerate(room)]
        second.append(s.linear.replace(
            invars=[*params, *s.linear.invars[len(s.residuals):]], arg_names=()))
    result = first, tuple(second), kept, out_unknown
    branches[0].memo[key] = (result, branches)       # kept alive: the key has their ids
    return result


def _places(split: Split, room: list[ArrayType]) -> dict[int, int]:
    """For each residual that a branch computes, its place among all; `room` grows as needed."""
    free = list(range(len(room)))
    places: dict[int, int] = {}
    for kind, i in split.residuals:
        if kind != "result" or i in places:
            continue
        t = split.known.outvars[i].aval
        place = next((k for k in free if room[k] is t), None)
        if place is None:
            place = len(room)
            room.append(t)
        else:
            free.remove(place)
        places[i] = place
    return places


def _with_room(known: Program, plain: int, places: dict[int, int], room: Sequence[ArrayType]
               ) -> Program:
    """The known branch, giving its known results and something for every residual."""
    def run(*args: Any) -> list[Any]:
        results = evaluate(known, args)
        made = {place: results[i] for i, place in places.items()}
        return [*results[:plain], *(made[k] if k in made else full_like(LinearOperand(t), 0)
                                    for k, t in enumerate(room))]

    return stage(run, known.in_avals, known)


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
