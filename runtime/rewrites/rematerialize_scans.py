"""Rematerialisation between scans: a scan stacks less for the scan that reads it.

The scan of a derivative reads what the scan of the forward pass stacked. What its body can compute
by cheap equations from other values that it is given is recomputed there instead.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.ops.control.loops_and_branches import stacked_type
from ...ir.program import Equation, Program, Var
from .inline_calls import inline_calls
from .min_cut import MIN_SAVED_BYTES, choose, held_bytes
from .rematerialize import with_recomputed, without_recomputed


def rematerialize_scans(program: Program) -> Program:
    """Let every scan of the program give fewer stacks to a scan that alone reads them."""
    scans = [i for i, e in enumerate(program.eqns) if e.op.name == "scan"]
    if len(scans) < 2:
        return program
    for i in scans:
        readers = _readers(program, i)
        for j in sorted({r for r in readers.values() if r is not None}):
            program = _between(program, i, j, readers)
            readers = _readers(program, i)
    return program


def _readers(program: Program, i: int) -> dict[Var, int | None]:
    """For each stack of the scan at i the one scan that iterates over it, if only one reads it."""
    eqn = program.eqns[i]
    found: dict[Var, int | None] = {}
    mine = set(eqn.outvars[eqn.params["num_carry"]:])
    for j in range(i + 1, len(program.eqns)):
        other = program.eqns[j]
        if mine.isdisjoint(other.invars):           # type: ignore[arg-type]
            continue
        first = (other.params["num_consts"] + other.params["num_carry"]
                 if other.op.name == "scan" else len(other.invars))
        for place, a in enumerate(other.invars):
            if a in mine:
                is_only_reader = place >= first and found.get(a, j) == j     # type: ignore[arg-type]
                found[a] = j if is_only_reader else None                     # type: ignore[index]
    for a in program.outvars:
        if a in mine:
            found[a] = None                                         # type: ignore[index]
    return found


class _Body:
    """The body of a scan, and which of its parameters and results stand for what outside."""

    def __init__(self, eqn: Equation) -> None:
        params = eqn.params
        self.eqn = eqn
        self.nc, self.nk = params["num_consts"], params["num_carry"]
        self.flat = flat = inline_calls(params["jaxpr"])
        self.first = self.nc + self.nk
        self.consts = dict(zip(flat.invars[:self.nc], eqn.invars[:self.nc], strict=True))
        self.items = dict(zip(flat.invars[self.first:], eqn.invars[self.first:], strict=True))
        self.stacks = dict(zip(eqn.outvars[self.nk:], flat.outvars[self.nk:], strict=True))


def _between(program: Program, i: int, j: int, readers: dict[Var, int | None]) -> Program:
    """Let the scan at i stack less for the scan at j."""
    a, b = _Body(program.eqns[i]), _Body(program.eqns[j])
    length = a.eqn.params["length"]
    if b.eqn.params["length"] != length or not length:
        return program
    made = {v: e for e in a.flat.eqns for v in e.outvars}
    carries = set(a.flat.invars[a.nc:a.first])
    mine = {outer: v for outer, v in a.stacks.items()
            if readers.get(outer) == j and (v in made or v in carries)}
    # What the second scan can have without another stack: what the first closes over, what it
    # iterates over if that stays, and what is stacked for others anyway.
    stays = {x for e in program.eqns[j:] for x in e.invars} | set(program.invars) | {
        v for v, _ in program.consts} | set(program.outvars)
    free: dict[Any, Any] = {**a.consts, **{v: v for v, _ in a.flat.consts}}
    free.update((v, x) for v, x in a.items.items() if x in stays)
    free.update((v, x) for x, v in a.stacks.items() if x in readers and x not in mine)
    wanted: dict[Any, None] = dict.fromkeys(v for v in mine.values() if v not in free)

    def price(v: Var) -> int:
        return 0 if v in free else held_bytes(v.aval)

    choice = choose(wanted, made, price, max(MIN_SAVED_BYTES // 4 // length, 1))
    if not choice.recomputed and all(v not in free for v in mine.values()) and (
            len(set(mine.values())) == len(mine)):
        return program
    return _rewrite(program, i, j, a, b, mine, free, choice.recomputed)


def _rewrite(program: Program, i: int, j: int, a: _Body, b: _Body, mine: dict[Var, Any],
             free: dict[Any, Any], recomputed: set[Var]) -> Program:
    made = {v: e for e in a.flat.eqns for v in e.outvars}
    chain = [e for e in a.flat.eqns if not recomputed.isdisjoint(e.outvars)]
    # The first scan: stacks of what is kept for the second.
    outer = {v: x for x, v in reversed(a.stacks.items())}
    gone = {x for x, v in mine.items() if v in recomputed or v in free or outer[v] is not x}
    stacks = {x: v for x, v in a.stacks.items() if x not in gone}
    outer = {v: x for x, v in stacks.items()}
    needed = [v for v in dict.fromkeys(
        v for e in chain for v in e.invars) if isinstance(v, Var) and v not in recomputed]
    for v in needed:
        if v not in free and v not in outer:
            outer[v] = Var(stacked_type(v.aval, a.eqn.params["length"]))
            stacks[outer[v]] = v
    eqns = without_recomputed(a.flat.eqns, recomputed, [*a.flat.outvars[:a.nk], *stacks.values()])
    first = _program(a, a.flat.invars, eqns, [*a.flat.outvars[:a.nk], *stacks.values()],
                     a.flat.consts)
    # The second one: parameters for what the equations read, then these where they are needed.
    names: dict[Var, Var] = {}
    params = dict(zip(b.eqn.invars[b.first:], b.flat.invars[b.first:], strict=True))
    more_consts: dict[Var, Any] = {}
    more_items: dict[Var, Any] = {}
    captured = list(b.flat.consts)
    values = dict(a.flat.consts)
    for v in (*needed, *(v for x, v in mine.items() if x in gone and v not in recomputed)):
        if v in names:
            continue
        names[v] = Var(v.aval, v.name)
        if v in values:
            captured.append((names[v], values[v]))
        elif v in a.consts:
            more_consts[names[v]] = a.consts[v]
        else:
            x = free[v] if v in free else outer[v]
            if x in params and x not in gone:
                names[v] = params[x]
            else:
                more_items[names[v]] = x
    rest = [(x, p) for x, p in zip(b.eqn.invars[b.first:], b.flat.invars[b.first:], strict=True)
            if x not in gone]
    renamed = {v: Var(v.aval, v.name) for v in recomputed}
    where: dict[Any, Any] = {**names, **renamed}
    formulas = {renamed[v]: made[v].with_operands([where.get(x, x) for x in made[v].invars],
                                                  (renamed[v],)) for v in recomputed}
    reads: dict[Any, Any] = {p: where[a.stacks[x]] for x, p in zip(  # type: ignore[index]
        b.eqn.invars[b.first:], b.flat.invars[b.first:], strict=True) if x in gone}
    body = [e if reads.keys().isdisjoint(e.invars) else
            e.with_operands([reads.get(x, x) for x in e.invars], e.outvars) for e in b.flat.eqns]
    results = [reads.get(x, x) for x in b.flat.outvars]
    body = with_recomputed(body, set(renamed.values()), formulas, set(), results)
    invars = [*b.flat.invars[:b.nc], *more_consts, *b.flat.invars[b.nc:b.first],
              *(p for _, p in rest), *more_items]
    second = _program(b, invars, body, results, captured)
    eqns = list(program.eqns)
    eqns[i] = Equation(
        a.eqn.op, a.eqn.invars, [*a.eqn.outvars[:a.nk], *stacks],
        {**a.eqn.params, "jaxpr": first}, a.eqn.location, a.eqn.reason)
    eqns[j] = Equation(
        b.eqn.op, [*b.eqn.invars[:b.nc], *more_consts.values(), *b.eqn.invars[b.nc:b.first],
                   *(x for x, _ in rest), *more_items.values()], b.eqn.outvars,
        {**b.eqn.params, "jaxpr": second, "num_consts": b.nc + len(more_consts)},
        b.eqn.location, b.eqn.reason)
    return program.replace(eqns=eqns)


def _program(body: _Body, invars: Sequence[Var], eqns: Sequence[Equation], outvars: Sequence[Any],
             consts: Sequence[tuple[Var, Any]]) -> Program:
    """The body with other parts."""
    return body.flat.replace(
        invars=invars, eqns=eqns, outvars=outvars, consts=consts, arg_names=(), result_names=())
