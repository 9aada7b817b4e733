"""Rematerialisation: recomputes values with long live ranges where they are read.

Only equations that cost next to nothing are run twice, on the same operands, so results do not
change. There are two places with long live ranges. In a straight program it is the point where most
is live, usually between the forward and the backward pass (`rematerialize`). Between two scans it
is what the first stacks for the second, usually its derivative (`rematerialize_scans`). In both,
`choose` (saved_values.py) decides which values are saved and which are recomputed from them: the
latter are computed in the second part, where they are read (`_recomputing`), and nothing reads them
in the first.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from itertools import accumulate
from typing import Any

from ...ir.facts import VIEW
from ...ir.ops.control.loop_operands import scan_operands
from ...ir.ops.control.loops_and_branches import stacked_type
from ...ir.program import Atom, Equation, Program, Var
from ...ir.rewriting.inline import inline
from ...ir.rewriting.unread import drop_dead
from .saved_values import (
    INFINITE_PRICE,
    MIN_SAVED_BYTES,
    NEGLIGIBLE_BYTES,
    choose,
    held_bytes,
    is_cheap,
)


def rematerialize(program: Program) -> Program:
    """The program with values recomputed that are live where most memory is held."""
    eqns = program.eqns
    # large values only
    size = {v: n for eqn in eqns for v in eqn.outvars
            if (n := held_bytes(v.aval)) >= NEGLIGIBLE_BYTES}
    if sum(size.values()) < 2 * MIN_SAVED_BYTES:
        return program
    born = {v: i for i, eqn in enumerate(eqns) for v in eqn.outvars if v in size}
    last: dict[Var, int] = {
        a: i for i, eqn in enumerate(eqns) for a in eqn.invars if a in size}  # type: ignore[misc]
    roots: dict[Var, Var] = {}
    views = {op for op in program.ops if VIEW in op.facts and not op.multiple_results}
    for eqn in eqns if views else ():
        if eqn.op in views:
            (v,), x = eqn.outvars, eqn.invars[0]
            roots[v] = roots[x] if x in roots else x            # type: ignore[assignment, index]
    # candidates: cheap values that live past the equation after the one that makes them
    far = [v for v, end in last.items() if end > born[v] + 1 and is_cheap(eqns[born[v]])]
    if not far:
        return program
    stay = {roots.get(a, a) for a in program.outvars}  # type: ignore[arg-type, call-overload]
    peak, most = _peak(size, born, last, roots, stay, len(eqns))
    if most < 2 * MIN_SAVED_BYTES or not any([born[v] <= peak < last[v] for v in far]):
        return program
    made = {v: eqns[i] for v, i in born.items() if i <= peak}       # small ones count as free

    def root(v: Var) -> Var:
        return roots[v] if v in roots else v

    prices = defaultdict(int, {v: size[v] for v in made if v not in stay})
    prices.update({v: INFINITE_PRICE if r in made and r not in stay else 0
                   for v, r in roots.items()})
    recomputed = choose([v for v in made if v in last and last[v] > peak], made,
                        prices.__getitem__, MIN_SAVED_BYTES // 16, root)
    if not recomputed:
        return program
    behind, _ = _recomputing(eqns[peak + 1:], {v: v for v in recomputed},
                             {v: made[v] for v in recomputed}, {})
    return drop_dead(program.replace(eqns=[*eqns[:peak + 1], *behind]))


def _peak(size: Mapping[Var, int], born: Mapping[Var, int], last: Mapping[Var, int],
          roots: Mapping[Var, Var], stay: Set[Atom], count: int) -> tuple[int, int]:
    """(the equation after which most bytes are held, how many these are), out of `count` equations.

    stay: results, which do not count.
    """
    ends = dict(last)
    for v, r in roots.items():          # a view keeps its root alive
        if v in born:
            end = ends.pop(v, born[v])
            if r not in ends or ends[r] < end:
                ends[r] = end
    change = [0] * (count + 1)
    for v, end in ends.items():
        if v in born and end > born[v] and v not in stay:
            change[born[v]] += size[v]
            change[end] -= size[v]
    held = list(accumulate(change))
    most = max(held)
    return held.index(most), most


def _recomputing(eqns: Sequence[Equation], reads: Mapping[Any, Var], made: Mapping[Var, Equation],
                 copies: dict[Var, Var], outvars: Sequence[Any] = (),
                 ) -> tuple[list[Equation], list[Any]]:
    """(the equations, each value recomputed before its first reader; the results then).

    reads: for what the equations read, the value from before the cut that it stands for. made: the
    equations to be repeated, by value. copies: the names after the cut of values from before it;
    extended by those recomputed here.
    """
    out: list[Equation] = []

    def copy(v: Var) -> Var:
        left = [v]
        while left:
            v = left[-1]
            more: list[Any] = [] if v in copies else [
                a for a in made[v].invars if a in made and a not in copies]
            left += more
            if not more and left.pop() not in copies:
                operands: list[Any] = [copies.get(a, a) for a in made[v].invars]  # type: ignore
                copies[v] = Var(v.aval, v.name)
                out.append(made[v].with_operands(operands, (copies[v],)))
        return copies[v]

    def here(atoms: Sequence[Any]) -> list[Any]:
        return [copy(reads[a]) if a in reads else a for a in atoms]

    for eqn in eqns:
        if not reads.keys().isdisjoint(eqn.invars):
            eqn = eqn.with_operands(here(eqn.invars), eqn.outvars)
        out.append(eqn)
    return out, here(outvars)


# -- between scans ---------------------------------------------------------------------------------

def rematerialize_scans(program: Program) -> Program:
    """The program, its scans stacking fewer values for a later scan that alone reads them."""
    scans = [i for i, e in enumerate(program.eqns) if e.op.name == "scan"]
    if len(scans) < 2:
        return program
    for i in scans:
        readers = _readers(program, i)
        for j in sorted({r for r in readers.values() if r is not None}):
            program = _stacking_less(program, i, j, readers)
            readers = _readers(program, i)
    return program


def _readers(program: Program, i: int) -> dict[Var, int | None]:
    """For each stack of the scan at i, the scan that alone reads it, as items; else None."""
    eqn = program.eqns[i]
    found: dict[Var, int | None] = {}
    mine = {*scan_operands(eqn.params).results(eqn.outvars)[1]}
    for j in range(i + 1, len(program.eqns)):
        other = program.eqns[j]
        if mine.isdisjoint(other.invars):           # type: ignore[arg-type]
            continue
        first = (scan_operands(other.params).first_item if other.op.name == "scan"
                 else len(other.invars))
        for place, a in enumerate(other.invars):
            if a in mine:
                is_only_reader = place >= first and found.get(a, j) == j     # type: ignore[arg-type]
                found[a] = j if is_only_reader else None                     # type: ignore[index]
    for a in program.outvars:
        if a in mine:
            found[a] = None                                         # type: ignore[index]
    return found


class _Body:
    """The body of a scan, with the mapping of its parameters and results to what is outside."""

    def __init__(self, program: Program, place: int) -> None:
        self.eqn = eqn = program.eqns[place]
        self.place, params = place, eqn.params
        self.flat = flat = inline(params["jaxpr"])
        parts = scan_operands(params)
        (self.nc, self.nk), self.first = parts, parts.first_item
        consts, _, items = parts.split([*zip(flat.invars, eqn.invars, strict=True)])
        self.consts, self.items = dict(consts), dict(items)
        self.stacks = dict(parts.results([*zip(eqn.outvars, flat.outvars, strict=True)])[1])


def _stacking_less(program: Program, i: int, j: int, readers: dict[Var, int | None]) -> Program:
    """The program with the scan at i stacking less for the scan at j, if that pays."""
    a, b = _Body(program, i), _Body(program, j)
    length = a.eqn.params["length"]
    if b.eqn.params["length"] != length or not length:
        return program
    made = {v: e for e in a.flat.eqns for v in e.outvars}
    carries = set(a.flat.invars[a.nc:a.first])
    mine = {outer: v for outer, v in a.stacks.items()
            if readers.get(outer) == j and (v in made or v in carries)}
    # What the second scan can read without another stack: constants of the first, its items if
    # they stay alive, and what is stacked for others anyway.
    stays = {x for e in program.eqns[j:] for x in e.invars} | set(program.invars) | {
        v for v, _ in program.consts} | set(program.outvars)
    free: dict[Any, Any] = {**a.consts, **{v: v for v, _ in a.flat.consts}}
    free.update((v, x) for v, x in a.items.items() if x in stays)
    free.update((v, x) for x, v in a.stacks.items() if x in readers and x not in mine)
    wanted: dict[Any, None] = dict.fromkeys(v for v in mine.values() if v not in free)

    def price(v: Var) -> int:
        return 0 if v in free else held_bytes(v.aval)

    recomputed = choose(wanted, made, price, max(MIN_SAVED_BYTES // 4 // length, 1))
    if not recomputed and all(v not in free for v in mine.values()) and (
            len(set(mine.values())) == len(mine)):
        return program
    return _recomputed_later(program, a, b, mine, free, recomputed)


def _recomputed_later(program: Program, a: _Body, b: _Body, mine: dict[Var, Any],
                      free: dict[Any, Any], recomputed: set[Var]) -> Program:
    """The program with scan b recomputing these values of scan a.

    mine: the stacks of a that b alone reads, with what they stack. free: what b can read without
    another stack, with what it is outside of a.
    """
    outer = {v: x for x, v in reversed(a.stacks.items())}
    gone = {x for x, v in mine.items() if v in recomputed or v in free or outer[v] is not x}
    stacks = {x: v for x, v in a.stacks.items() if x not in gone}
    saved = dict.fromkeys(
        [v for e in a.flat.eqns if not recomputed.isdisjoint(e.outvars) for v in e.invars
         if isinstance(v, Var) and v not in recomputed])
    have = {*free, *stacks.values()}
    stacks.update((Var(stacked_type(v.aval, a.eqn.params["length"])), v)
                  for v in saved if v not in have)
    read = dict.fromkeys([*saved, *(v for x, v in mine.items()
                                    if x in gone and v not in recomputed)])
    scans = list(program.eqns)
    scans[a.place] = _stacking(a, stacks)
    scans[b.place] = _recomputing_scan(
        a, b, gone, recomputed, {v: x for x, v in stacks.items()} | free, read)
    return program.replace(eqns=scans)


def _stacking(a: _Body, stacks: Mapping[Var, Any]) -> Equation:
    """Scan a with these stacks, and without what it computes for others alone."""
    results: Sequence[Any] = [*a.flat.outvars[:a.nk], *stacks.values()]
    body = drop_dead(a.flat.replace(outvars=results, arg_names=(), result_names=()))
    return a.eqn.replace(outvars=[*a.eqn.outvars[:a.nk], *stacks],
                         params={**a.eqn.params, "jaxpr": body})


def _recomputing_scan(a: _Body, b: _Body, gone: Set[Any], recomputed: set[Var],
                      outside: Mapping[Any, Any], read: Mapping[Var, None]) -> Equation:
    """Scan b, computing values of scan a again instead of reading the stacks that are gone.

    outside: what stands outside for values of a's body. read: those of them that are needed.
    """
    given = list(zip(b.eqn.invars[b.first:], b.flat.invars[b.first:], strict=True))
    rest = [(x, p) for x, p in given if x not in gone]
    params, values, captured = dict(rest), dict(a.flat.consts), list(b.flat.consts)
    more_consts: dict[Var, Any] = {}
    more_items: dict[Var, Any] = {}
    copies: dict[Var, Var] = {}
    for v in read:
        copies[v] = Var(v.aval, v.name)
        if v in values:
            captured.append((copies[v], values[v]))
        elif v in a.consts:
            more_consts[copies[v]] = a.consts[v]
        elif outside[v] in params:
            copies[v] = params[outside[v]]
        else:
            more_items[copies[v]] = outside[v]
    made = {v: e for e in a.flat.eqns for v in e.outvars if v in recomputed}
    eqns, results = _recomputing(
        b.flat.eqns, {p: a.stacks[x] for x, p in given if x in gone},  # type: ignore[index]
        made, copies, b.flat.outvars)
    body = b.flat.replace(
        invars=[*b.flat.invars[:b.nc], *more_consts, *b.flat.invars[b.nc:b.first],
                *[p for _, p in rest], *more_items],
        eqns=eqns, outvars=results, consts=captured, arg_names=(), result_names=())
    return b.eqn.replace(
        invars=[*b.eqn.invars[:b.nc], *more_consts.values(), *b.eqn.invars[b.nc:b.first],
                *[x for x, _ in rest], *more_items.values()],
        params={**b.eqn.params, "jaxpr": body, "num_consts": b.nc + len(more_consts)})
