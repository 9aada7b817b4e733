"""Derivatives of `scan` equations: a loop stays one loop.

Which carries have a tangent, or are unknown, is a fixed point over the body. A scan is split in two
scans: residuals are stacked by the first and iterated over by the second, and loop invariants are
computed once, before. The transpose of a scan runs in the opposite direction, carries the
cotangents of the carries, and accumulates those of the closed-over values.
"""
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ....ir.ops.communication.sharding import reshard_p
from ....ir.ops.control.loop_operands import scan_operands, scan_params
from ....ir.ops.control.loops_and_branches import scan_p
from ....ir.ops.derivatives import add_any
from ....ir.program import Atom, Literal, Program
from ....ir.settings.context import STATE
from ....ir.shardings.normalized import unsharded
from ....ir.support.caches import in_memo
from ....ir.support.immutable import immutable
from ....ir.types import ArrayType
from ....ir.values.typeof import typeof
from ..call_rules import PartialEvaluation, register
from ..dependence import iterated, moving_results, reached_results
from ..forward import Mask, jvp_program, matching, zero_tangent
from ..partial_eval import split_program
from ..replay import evaluate, live_equations, stage
from ..transpose import (
    backward,
    is_linear,
    weak_cotangent_type,
    zero_cotangent,
)

Params = dict[str, Any]


def grown(mask: Mask, first: int, carries: int, program: Callable[[Mask, Mask], Mask],
          bound: Callable[[Mask], Mask]) -> Mask:
    """The smallest mask of operands from `mask` on that holds for the carries in every iteration.

    program: (mask of operands, mask of carries) -> mask of results, the carries being the first.
    bound: mask of operands -> a lower bound of the same that is cheap to have (dependence.py).
    """
    def answer(mask: Mask, carried: Mask) -> Mask:
        return bound(mask)

    for ask in (answer, program):
        while True:
            carried = mask[first:first + carries]
            results = ask(mask, carried)[:carries]
            more = tuple([a or b for a, b in zip(carried, results, strict=True)])
            if more == carried:
                break
            mask = (*mask[:first], *more, *mask[first + carries:])
    return mask


def interleave(items: Sequence[Any], mask: Mask, more: Sequence[Any], ends: Sequence[int]
           ) -> list[list[Any]]:
    """Groups of items, each followed by the items of `more` that belong to it.

    mask: which items have one in `more`. ends: where each group of items ends.
    """
    extra = dict(zip([i for i, m in enumerate(mask) if m], more, strict=True))
    groups, start = [], 0
    for end in ends:
        groups.append([*items[start:end], *(extra[i] for i in range(start, end) if mask[i])])
        start = end
    return groups


def tangents_given(operands: Sequence[Any], tangents: Sequence[Any], mask: Mask) -> list[Any]:
    """The tangents of the operands that `mask` names, zeros where there is none yet."""
    return [matching(zero_tangent(x) if t is None else t, typeof(x))
            for x, t, m in zip(operands, tangents, mask, strict=True) if m]


def deinterleave(results: Sequence[Any], mask: Mask, ends: Sequence[int]) -> tuple[list, list]:
    """Results and tangents of a loop whose results are `interleave` their tangents."""
    values: list[Any] = []
    found: dict[int, Any] = {}
    it, start = iter(results), 0
    for end in ends:
        values += [next(it) for _ in range(start, end)]
        for i in range(start, end):
            if mask[i]:
                found[i] = next(it)
        start = end
    return values, [found.get(i) for i in range(len(values))]


# -- scan: forward ---------------------------------------------------------------------------------

def scan_jvp(operands: Sequence[Any], tangents: Sequence[Any], params: Params
             ) -> tuple[list[Any], list[Any]]:
    """Values and tangents, in one scan."""
    body: Program = params["jaxpr"]
    nc, nk = scan_operands(params)
    rest = (False,) * (len(body.outvars) - nk)
    mask = grown(tuple(t is not None for t in tangents), nc, nk,
                 lambda m, carried: jvp_program(body, m, (*carried, *rest))[1],
                 functools.partial(moving_results, body))
    pushed, out_mask = jvp_program(body, mask, (*mask[nc:nc + nk], *rest))
    n, ends = len(body.invars), (nc, nc + nk, len(body.invars))
    outs, out_ends = len(body.outvars), (nk, len(body.outvars))
    key = ("scan-jvp", mask)
    arranged = body.memo.get(key)
    if arranged is None:
        arranged = body.memo[key] = pushed.replace(
            invars=sum(interleave(pushed.invars[:n], mask, pushed.invars[n:], ends), []),
            outvars=sum(interleave(pushed.outvars[:outs], out_mask, pushed.outvars[outs:],
                                   out_ends), []))
    groups = interleave(operands, mask, tangents_given(operands, tangents, mask), ends)
    results = scan_p.bind(*sum(groups, []), **{
        **params, "jaxpr": arranged, **scan_params(len(groups[0]), len(groups[1]))})
    return deinterleave(results, out_mask, out_ends)


# -- scan: the split -------------------------------------------------------------------------------

@immutable
class SplitScan:
    """A scan cut in two.

    unknown: operands of the second. known, linear: params of both. before: the program of what the
    body computes in every iteration alike, from the known operands that it closes over.
    sources: of the second's operands: ("operand", i) of the whole scan, ("result", i) of the known
    scan, ("before", i). out_unknown: results of the second.
    """
    unknown: Mask
    known: Params
    linear: Params
    before: Program
    sources: tuple[tuple[str, int], ...]
    out_unknown: Mask


def cut_scan(params: Params, unknown: Mask) -> SplitScan:
    """Cut a scan by what depends on its unknown operands."""
    body: Program = params["jaxpr"]
    nc, nk = scan_operands(params)
    key = ("scan-cut", unknown, nc, nk, params["length"], params["reverse"])
    found = body.memo.get(key)
    if found is None:
        found = body.memo[key] = _cut_scan(params, unknown)
    return found


def _place_among(results: list[Atom], atom: Atom, first: int) -> int:
    """The position of a value among the results from the first-th on, where it is appended if it
    is not one of them.
    """
    for place, other in enumerate(results[first:], first):
        if other is atom:
            return place
    results.append(atom)
    return len(results) - 1


def _by_slot(slots: Sequence[int]) -> list[list[int]]:
    """The positions of operands that are constants (0), carried (1) and iterated over (2)."""
    return [[place for place, slot in enumerate(slots) if slot == kind] for kind in range(3)]


def _cut_scan(params: Params, unknown: Mask) -> SplitScan:
    """The split of a scan into three programs: what residuals need that is the same in every
    iteration, before the loop; the known scan, which stacks the other residuals; and the linear
    scan, which takes these as constants or iterates over them.
    """
    body: Program = params["jaxpr"]
    nc, nk = scan_operands(params)
    rest = (False,) * (len(body.outvars) - nk)
    unknown = grown(unknown, nc, nk, lambda m, carried: split_program(
        body, m, (*carried, *rest)).out_unknown, functools.partial(reached_results, body))
    split = split_program(body, unknown, (*unknown[nc:nc + nk], *rest))
    known, linear = split.known, split.linear
    given = [i for i, u in enumerate(unknown) if not u]
    consts = sum(i < nc for i in given)
    carried = sum(nc <= i < nc + nk for i in given)
    plain = sum(not u for u in split.out_unknown)          # known carries, then known stacks
    fixed = _fixed(known, consts)
    before: list[Atom] = []
    stacked: list[Atom] = list(known.outvars[:plain])
    sources: list[tuple[str, int]] = []
    iterated: list[bool] = []                              # is a residual another in each iteration
    for kind, i in split.residuals:
        atom: Atom = known.invars[i] if kind == "operand" else known.outvars[i]
        if kind == "operand" and not consts <= i < consts + carried:
            source, changes = ("operand", given[i]), i >= consts
        elif atom in fixed or isinstance(atom, Literal):
            before.append(atom)
            source, changes = ("before", len(before) - 1), False
        else:
            source, changes = ("result", _place_among(stacked, atom, carried)), True
        sources.append(source)
        iterated.append(changes)
    first = known.replace(outvars=stacked, result_names=())
    eqns = live_equations([e for e in known.eqns
                            if e.outvars and fixed.issuperset(e.outvars)], before)
    head = known.replace(name=f"{body.name}_before", invars=known.invars[:consts], eqns=eqns,
                         outvars=before, arg_names=(), result_names=())

    waiting = [i for i, u in enumerate(unknown) if u]
    operands = [*sources, *(("operand", i) for i in waiting)]
    groups = _by_slot([*(2 if changes else 0 for changes in iterated),
                       *(0 if i < nc else 1 if i < nc + nk else 2 for i in waiting)])
    order = [place for group in groups for place in group]
    second = linear.replace(invars=[linear.invars[p] for p in order], arg_names=())
    return SplitScan(unknown, {**params, "jaxpr": first, **scan_params(consts, carried)},
               {**params, "jaxpr": second,
                **scan_params(len(groups[0]), len(groups[1]))},
               head, tuple(operands[p] for p in order), split.out_unknown)


def _fixed(program: Program, consts: int) -> set[Atom]:
    """What a body computes from its first `consts` parameters alone."""
    found: set[Atom] = {*program.invars[:consts], *program.constvars}
    for eqn in program.eqns:
        if not eqn.effects and all(isinstance(a, Literal) or a in found for a in eqn.invars):
            found.update(eqn.outvars)
    return found


def _run_known(cut: SplitScan, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Results of the known scan, and the operands of the other one."""
    given = [x for x, u in zip(operands, cut.unknown, strict=True) if not u]
    results: Sequence[Any] = []
    if cut.known["jaxpr"].outvars:
        results = scan_p.bind(*given, **cut.known)
    made: Sequence[Any] = []
    if cut.before.outvars:
        made = evaluate(cut.before, scan_operands(cut.known).split(given)[0])
    places = {"operand": operands, "result": results, "before": made}
    return list(results), [places[kind][i] for kind, i in cut.sources]


def scan_split(evaluation: PartialEvaluation, operands: Sequence[Any], params: Params
               ) -> list[Any]:
    """A scan of what is known, and one in the linear program."""
    cut = cut_scan(params, tuple(map(evaluation.is_unknown, operands)))
    results, others = _run_known(cut, operands)
    waiting: list[Any] = []
    if any(cut.out_unknown):
        waiting = evaluation.linear.process(scan_p, others, cut.linear)
    now, later = iter(results), iter(waiting)
    return [next(later) if u else next(now) for u in cut.out_unknown]


# -- scan: backward --------------------------------------------------------------------------------

def scan_transpose(cts: Sequence[Any], operands: Sequence[Any], params: Params) -> list[Any]:
    """A scan the other way round, over the cotangents of what was stacked."""
    linear = tuple(map(is_linear, operands))
    nc, nk = scan_operands(params)
    if all(linear[nc:nc + nk]) or _nothing_known(params["jaxpr"], linear, nc, nk):
        return _transposed(cts, operands, params)
    # Counters and the like, which are not linear, are computed first, for every iteration.
    cut = cut_scan(params, linear)
    _, others = _run_known(cut, operands)
    given = [ct for ct, u in zip(cts, cut.out_unknown, strict=True) if u]
    found: list[Any] = [None] * len(operands)
    for (kind, i), ct in zip(cut.sources, _transposed(given, others, cut.linear), strict=True):
        if kind == "operand":
            found[i] = ct
    return found


def _nothing_known(body: Program, unknown: Mask, nc: int, nk: int) -> bool:
    """Whether all that a body carries and computes depends on unknown operands in the end."""
    more = iterated(body, unknown, nc, nk, reached_results)[:nk]
    if not all(more):
        return False
    found = {v for v, u in zip(body.invars, (*unknown[:nc], *more, *unknown[nc + nk:]),
                               strict=True) if u}
    for eqn in body.eqns:
        if found.isdisjoint(eqn.invars):
            return False
        found.update(eqn.outvars)
    return True


def _transposed(cts: Sequence[Any], operands: Sequence[Any], params: Params) -> list[Any]:
    """Cotangents of the operands of a scan all of whose carries are linear."""
    body: Program = params["jaxpr"]
    nc, nk = scan_operands(params)
    consts, _, xs = scan_operands(params).split(operands)
    linear = (*map(is_linear, consts), *(True,) * nk, *map(is_linear, xs))
    given = tuple([ct is not None for ct in cts[nk:]])
    program, summed, rows = _backward_body(body, linear, given, nc, nk)
    types = body.in_avals
    start = [matching(zero_cotangent(types[i]), types[i]) for i in summed]
    last = [matching(zero_cotangent(v.aval) if ct is None else ct, v.aval)
            for ct, v in zip(cts[:nk], body.outvars, strict=False)]
    fixed = [x for x in consts if not is_linear(x)]
    results = scan_p.bind(
        *fixed, *start, *last, *[x for x in xs if not is_linear(x)],
        *[ct for ct in cts[nk:] if ct is not None],
        **{**params, "jaxpr": program, "reverse": not params["reverse"],
           **scan_params(len(fixed), len(start) + nk)})
    made = iter(results)
    found: list[Any] = [None] * len(operands)
    for i in (*summed, *range(nc, nc + nk), *rows):
        ct = next(made)
        found[i] = ct if is_linear(operands[i]) else None
    return found


@in_memo
def _backward_body(body: Program, linear: Mask, given: Mask, nc: int, nk: int
                   ) -> tuple[Program, list[int], list[int]]:
    """The transposed body, which adds the cotangents of what it closes over to sums of them.

    given: which stacks have a cotangent. The program takes the constants in which the body is not
    linear, sums, cotangents of carries, items in which it is not linear, cotangents of stacks; it
    gives the sums, cotangents of carries, and of items. Also the operands that have a sum, and the
    items that have a cotangent.
    """
    avals = body.in_avals
    ct_types = [weak_cotangent_type(v.aval) for v in body.outvars]
    consts, items = range(nc), range(nc + nk, len(avals))
    fixed = [avals[i] for i in consts if not linear[i]]
    sums = [weak_cotangent_type(avals[i]) for i in consts if linear[i]]
    rows = [avals[i] for i in items if not linear[i]]
    stacks = [t for t, g in zip(ct_types[nk:], given, strict=True) if g]
    ends = list(itertools.accumulate(map(len, (fixed, sums, ct_types[:nk], rows, stacks))))
    used: list[bool] = []
    summed: list[int] = []
    kept: list[int] = []

    def run(*args: Any) -> list[Any]:
        constants, so_far, carried, iterated, stacked = (
            iter(args[i:j]) for i, j in zip((0, *ends), ends, strict=False))
        operands = [None if m else next(iterated if i >= nc else constants)
                    for i, m in enumerate(linear)]
        back = backward(body, operands, [*carried, *(next(stacked) if g else None for g in given)])
        for i, t in enumerate(avals):
            ct = zero_cotangent(t) if back[i] is None and nc <= i < nc + nk else back[i]
            back[i] = None if ct is None else matching(ct, t)
        totals = []
        for i in consts:
            if linear[i]:
                total = next(so_far)
                used.append(back[i] is not None)
                if back[i] is not None:
                    summed.append(i)
                    totals.append(add_any(total, _on_mesh(back[i], typeof(total))))
        kept.extend([i for i in items if back[i] is not None])
        carries = [_on_mesh(ct, t) for ct, t in zip(back[nc:nc + nk], ct_types, strict=False)]
        return [*totals, *carries, *(back[i] for i in kept)]

    new = stage(run, [*fixed, *sums, *ct_types[:nk], *rows, *stacks], body)
    unused = {v for v, u in zip(new.invars[len(fixed):], used, strict=False) if not u}
    new = new.replace(invars=[v for v in new.invars if v not in unused],
                      eqns=live_equations(new.eqns, new.outvars))
    return new, summed, kept


def _on_mesh(ct: Any, t: ArrayType) -> Any:
    """A cotangent that comes out of a region with other axis types, as its value is outside."""
    mesh = typeof(ct).mesh
    here = STATE.abstract_mesh
    if mesh is here or mesh.explicit_axes or not mesh.axis_names or not here.axis_names:
        return ct
    target = t.sharding if t.mesh is here else unsharded(t.ndim, here)
    return reshard_p.bind(ct, dst_sharding=target)


register("scan", jvp=scan_jvp, split=scan_split, transpose=scan_transpose)
