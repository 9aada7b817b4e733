"""Removal of equations whose results are not read."""
from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from ..op import Op
from ..program import Atom, Equation, Program


def without_unread(eqns: Sequence[Equation], outvars: Iterable[Atom],
                   ops: Container[Op] | None = None) -> Sequence[Equation]:
    """Without equations that nothing reads and nobody hears of; of these ops, if any are given.

    The equations themselves where all are read.
    """
    outvars = tuple(outvars)
    read: set[Atom] = {*outvars}.union(*[eqn.invars for eqn in eqns])
    for eqn in eqns:
        results = eqn.outvars
        if results and results[0] not in read and read.isdisjoint(results):
            break
    else:                           # what is read by unread equations alone ends in one of these
        return eqns
    read, kept = {*outvars}, []
    for eqn in reversed(eqns):
        results = eqn.outvars
        if (results and read.isdisjoint(results) and (ops is None or eqn.op in ops)
                and not eqn.effects):
            continue
        kept.append(eqn)
        read.update(eqn.invars)
    if len(kept) == len(eqns):
        return eqns
    kept.reverse()
    return kept


def drop_dead(program: Program) -> Program:
    """The program without equations that nothing reads, but for what the host sees."""
    eqns = without_unread(program.eqns, program.outvars)
    return program if eqns is program.eqns else program.replace(eqns=eqns)
