"""Rematerialisation: values with long live ranges are recomputed where they are read.

Only by equations that cost next to nothing, on the same operands, so results do not change. Which
values are saved and which are recomputed is decided by a minimum cut (min_cut.py). Values that one
scan stacks for another are in rematerialize_scans.py.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from itertools import accumulate
from typing import Any

from ...ir.facts import VIEW
from ...ir.program import Atom, Equation, Program, Var
from .min_cut import (
    INFINITE_PRICE,
    MIN_SAVED_BYTES,
    NEGLIGIBLE_BYTES,
    choose,
    held_bytes,
    is_cheap,
)


def rematerialize(program: Program) -> Program:
    """Hold less where the most is held: between the way forward and the way back, usually."""
    eqns = program.eqns
    # of large values
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
    # what could be computed later: another equation stands between it and its last reader
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
    choice = choose([v for v in made if v in last and last[v] > peak], made,
                    prices.__getitem__, MIN_SAVED_BYTES // 16, root)
    if not choice.recomputed:
        return program
    before = without_recomputed(eqns[:peak + 1], choice.recomputed)
    return program.replace(eqns=[*before, *with_recomputed(eqns[peak + 1:], choice.recomputed, made,
                                                {v for e in before for v in e.outvars})])


def _peak(size: Mapping[Var, int], born: Mapping[Var, int], last: Mapping[Var, int],
          roots: Mapping[Var, Var], stay: Set[Atom], count: int) -> tuple[int, int]:
    """After which of `count` equations the most bytes are held, and how many.

    stay: results, which do not count.
    """
    ends = dict(last)
    for v, r in roots.items():          # a view is held with what it is a view of
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


def without_recomputed(eqns: Sequence[Equation], recomputed: set[Var], outvars: Sequence[Any] = ()
            ) -> list[Equation]:
    """The equations but those that compute, for no other one, what is computed again.

    outvars: what is read at the end.
    """
    remaining: list[Equation] = []
    needed: set[Any] = set(outvars)
    for eqn in reversed(eqns):
        if recomputed.isdisjoint(eqn.outvars) or not needed.isdisjoint(eqn.outvars):
            remaining.append(eqn)
            needed.update(eqn.invars)
    remaining.reverse()
    return remaining


def with_recomputed(eqns: Sequence[Equation], recomputed: set[Var], made: Mapping[Var, Equation],
         there: set[Var], outvars: Sequence[Any] = ()) -> list[Equation]:
    """The equations with what is computed again before those that read it first.

    made: how. there: what has been computed before, to which other names are given. outvars: what
    is read at the end.
    """
    names: dict[Var, Var] = {}
    out: list[Equation] = []

    def compute(wanted: Sequence[Any]) -> None:
        left = [v for v in wanted if v in recomputed and v not in names]
        while left:
            v = left[-1]
            eqn = made[v]
            more = [a for a in eqn.invars if a in recomputed and a not in names]
            if more:
                left += more                    # type: ignore[arg-type]
                continue
            left.pop()
            if v in names:
                continue
            names[v] = Var(v.aval, v.name) if v in there else v
            if v in there or not names.keys().isdisjoint(eqn.invars):  # type: ignore[arg-type]
                eqn = eqn.with_operands([names.get(a, a) for a in eqn.invars],  # type: ignore[arg-type]
                             (names[v],))
            out.append(eqn)

    for eqn in eqns:
        if not recomputed.isdisjoint(eqn.invars):    # type: ignore[arg-type]
            compute(eqn.invars)
            eqn = eqn.with_operands([names.get(a, a) for a in eqn.invars], eqn.outvars)  # type: ignore
        out.append(eqn)
    compute(outvars)
    return out
