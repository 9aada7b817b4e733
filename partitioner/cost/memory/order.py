"""The order in which XLA's CPU compiler runs the equations of a program: breadth first.

First comes what can run as soon as the arguments are there, including all gathers of parameters,
then what can run after that. This order allows most equations to run in parallel, but holds more at
once than the order of the program. A fused equation runs just before the first one that it is fused
into. After XLA's BFScheduler (github.com/openxla/xla,
xla/hlo/transforms/simplifiers/hlo_memory_scheduler.cc).
"""
from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

from ....ir.program import Program, Var
from ....ir.rewriting.inside import inside
from ..buffers import WRITTEN, buffers

BREADTH_FIRST = "breadth-first"         # a program's note that it is in this order


def breadth_first(program: Program) -> Program:
    """A LOCAL program and those that it holds in this order. Effects stay in theirs."""
    program = inside(program, breadth_first)
    eqns, fused = program.eqns, buffers(program, WRITTEN).fused
    makers = {v: i for i, eqn in enumerate(eqns) for v in eqn.outvars if v in fused}
    order: dict[int, None] = {}
    for i in _kernels(program, fused):
        kernel, new = {i}, [i]
        while new:
            for a in eqns[new.pop()].invars:
                j = makers.get(a, i)                                # type: ignore[call-overload]
                if j not in kernel and j not in order:
                    kernel.add(j)
                    new.append(j)
        order.update(dict.fromkeys(sorted(kernel)))
    program = program.replace(eqns=[eqns[i] for i in order])
    program.attributes[BREADTH_FIRST] = True
    return program


def _kernels(program: Program, fused: set[Var]) -> Iterator[int]:
    """The numbers of the equations that are not fused, in their order."""
    eqns = program.eqns
    readers: dict[Var | int, list[int]] = defaultdict(list)         # of an effect: the next one
    waits = [0] * len(eqns)
    effect = None
    for i, eqn in enumerate(eqns):
        reads: set[Var | int] = {a for a in eqn.invars if isinstance(a, Var)}
        if eqn.effects:
            reads.update(() if effect is None else (effect,))
            effect = i
        for v in reads:
            readers[v].append(i)
        waits[i] = len(reads)

    def results(i: int) -> list[Var | int]:
        made = eqns[i].outvars
        return [*made] if made and fused.issuperset(made) else [i]

    ready = deque[Var | int]([*program.invars, *program.constvars])
    for i in [i for i, count in enumerate(waits) if not count]:
        ready += results(i)
    while ready:
        made = [ready.popleft()]
        if isinstance(made[0], int):
            yield made[0]
            made += eqns[made[0]].outvars
        for v in made:                                              # grows by what is fused
            for i in readers[v]:
                waits[i] -= 1
                if not waits[i]:
                    found = results(i)
                    (ready if found == [i] else made).extend(found)
