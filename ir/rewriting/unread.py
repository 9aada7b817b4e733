"""Which values are read, and by which equations alone; those that nothing reads are dropped."""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence

from ..op import Op
from ..program import Atom, Equation, Program
from ..support.caches import in_memo


def without_unread(eqns: Sequence[Equation], outvars: Iterable[Atom],
                   ops: Container[Op] | None = None) -> Sequence[Equation]:
    """Without unread equations that have no effect; of these ops, if any are given. The equations
    themselves where all are read.
    """
    outvars = tuple(outvars)
    read: set[Atom] = {*outvars}.union(*[eqn.invars for eqn in eqns])
    waiting = [eqn for eqn in eqns if eqn.outvars and eqn.outvars[0] not in read
               and read.isdisjoint(eqn.outvars) and (ops is None or eqn.op in ops)
               and not eqn.effects]
    if not waiting:
        return eqns
    reads = Counter([a for eqn in eqns for a in eqn.invars])
    reads.update(outvars)
    made = {v: eqn for eqn in eqns for v in eqn.outvars}
    gone = {*waiting}
    while waiting:
        for a in waiting.pop().invars:
            reads[a] -= 1
            if not reads[a] and a in made:
                eqn = made[a]                               # type: ignore[index]
                if eqn not in gone and not any([reads[v] for v in eqn.outvars]) and (
                        ops is None or eqn.op in ops) and not eqn.effects:
                    gone.add(eqn)
                    waiting.append(eqn)
    return [eqn for eqn in eqns if eqn not in gone]


def read_by_others(program: Program, eqns: Container[Equation]) -> set[Atom]:
    """The values that others than these equations read, and the results of a program."""
    return {*program.outvars}.union(*[e.invars for e in program.eqns if e not in eqns])


@in_memo
def only_readers(program: Program) -> defaultdict[Atom, Equation | None]:
    """By value, the equation that alone reads it, and reads it once; None where there is none, or
    the value is a result.
    """
    found: defaultdict[Atom, Equation | None] = defaultdict(lambda: None)
    for eqn in program.eqns:
        for a in eqn.invars:
            found[a] = None if a in found else eqn
    found.update(dict.fromkeys(program.outvars))
    return found


def drop_dead(program: Program) -> Program:
    """The program without equations that nothing reads, but for what the host sees."""
    eqns = without_unread(program.eqns, program.outvars)
    return program if eqns is program.eqns else program.replace(eqns=eqns)
