"""Equations that a rewrite has left without readers."""
from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from ..ir.op import Op
from ..ir.program import Atom, Equation


def without_unread(eqns: Sequence[Equation], outvars: Iterable[Atom], ops: Container[Op]
                   ) -> list[Equation]:
    """Without equations of these ops, each of one result, that nothing reads any more."""
    outvars = tuple(outvars)
    read = set(outvars).union(*[eqn.invars for eqn in eqns])
    if all([eqn.outvars[0] in read for eqn in eqns if eqn.op in ops]):
        return list(eqns)
    used: set[Atom] = set(outvars)
    kept = []
    for eqn in reversed(eqns):
        if eqn.op in ops and eqn.outvars[0] not in used:
            continue
        used.update(eqn.invars)
        kept.append(eqn)
    return kept[::-1]
