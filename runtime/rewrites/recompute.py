"""Equations moved, or done again, to right before those that read their results."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.program import Equation, Var


def without(eqns: Sequence[Equation], again: set[Var], outvars: Sequence[Any] = ()
            ) -> list[Equation]:
    """The equations but those that compute, for no other one, what is computed again.

    outvars: what is read at the end.
    """
    kept: list[Equation] = []
    needed: set[Any] = set(outvars)
    for eqn in reversed(eqns):
        if again.isdisjoint(eqn.outvars) or not needed.isdisjoint(eqn.outvars):
            kept.append(eqn)
            needed.update(eqn.invars)
    kept.reverse()
    return kept


def late(eqns: Sequence[Equation], again: set[Var], made: Mapping[Var, Equation],
         there: set[Var], outvars: Sequence[Any] = ()) -> list[Equation]:
    """The equations with what is computed again before those that read it first.

    made: how. there: what has been computed before, to which other names are given. outvars: what
    is read at the end.
    """
    names: dict[Var, Var] = {}
    out: list[Equation] = []

    def compute(wanted: Sequence[Any]) -> None:
        left = [v for v in wanted if v in again and v not in names]
        while left:
            v = left[-1]
            eqn = made[v]
            more = [a for a in eqn.invars if a in again and a not in names]
            if more:
                left += more                    # type: ignore[arg-type]
                continue
            left.pop()
            if v in names:
                continue
            names[v] = Var(v.aval, v.name) if v in there else v
            if v in there or not names.keys().isdisjoint(eqn.invars):  # type: ignore[arg-type]
                eqn = eqn.on([names.get(a, a) for a in eqn.invars],  # type: ignore[arg-type]
                             (names[v],))
            out.append(eqn)

    for eqn in eqns:
        if not again.isdisjoint(eqn.invars):    # type: ignore[arg-type]
            compute(eqn.invars)
            eqn = eqn.on([names.get(a, a) for a in eqn.invars], eqn.outvars)  # type: ignore
        out.append(eqn)
    compute(outvars)
    return out
