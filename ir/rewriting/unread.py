"""Removal of equations whose results are not read."""
from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from ..op import Op
from ..program import Atom, Equation, Program


def without_unread(eqns: Sequence[Equation], outvars: Iterable[Atom],
                   ops: Container[Op] | None = None,
                   narrowed: Callable[[Equation, set[Atom]], Equation] | None = None
                   ) -> Sequence[Equation]:
    """Without equations that nothing reads and nobody hears of; of these ops, if any are given.

    narrowed: what an equation is with the results alone that are in a set of values that are read.
    The equations themselves where all are read.
    """
    outvars = tuple(outvars)
    read: set[Atom] = {*outvars}.union(*[eqn.invars for eqn in eqns])
    for eqn in eqns if narrowed is None else ():
        results = eqn.outvars
        if results and results[0] not in read and read.isdisjoint(results):
            break
    else:                           # what is read by unread equations alone ends in one of these
        if narrowed is None:
            return eqns
    read, kept = {*outvars}, []
    for eqn in reversed(eqns):
        results = eqn.outvars
        if (results and read.isdisjoint(results) and (ops is None or eqn.op in ops)
                and not eqn.effects):
            continue
        if narrowed is not None:
            eqn = narrowed(eqn, read)
        kept.append(eqn)
        read.update(eqn.invars)
    if narrowed is None and len(kept) == len(eqns):
        return eqns
    kept.reverse()
    return kept


def drop_dead(program: Program) -> Program:
    """The program without equations that nothing reads, but for what the host sees."""
    eqns = without_unread(program.eqns, program.outvars)
    return program if eqns is program.eqns else program.replace(eqns=eqns)
