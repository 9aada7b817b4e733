"""What goes through memory when equations run as kernels, as a compiler forms them.

Elementwise equations and reductions that wait for the same things run in one kernel: what one of
them makes the others need not read again, and what several read is read once. A value is written
where something outside of its kernel reads it. Switched devices (GPUs) keep rows at hand: a row
that is read once more with what it was reduced to (softmax, normalisations) stays where it is, as
in XLA's kernels for these. Measured on an H100; docs/cost-model.md has the figures.
"""
from __future__ import annotations

from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.rules.factor import REDUCE
from ...ir.support.named_tuple import NamedTuple
from .buffers import Kind, buffers, by_types, info_of


class Kernels(NamedTuple):
    """root: value -> the value whose buffer it is. fused: values that are never written. free: of
    an equation the operands, by number, that its kernel has at hand.
    """
    root: dict[Var, Var]
    fused: set[Var]
    free: dict[Equation, list[int]]


def kernels(program: Program, keeps_rows: bool = False) -> Kernels:
    """The kernels of a program (not of those inside). keeps_rows: as switched devices do."""
    key = ("kernels", keeps_rows)
    found = program.memo.get(key)
    if found is None:
        found = program.memo[key] = _kernels(program, keeps_rows)
    return found


def _kernels(program: Program, keeps_rows: bool) -> Kernels:
    held = buffers(program)
    eqns, root, kinds, fused = program.eqns, held.root, held.kinds, set(held.fused)
    makers: dict[Atom, int] = {v: i for i, eqn in enumerate(eqns) for v in eqn.outvars}
    readers: dict[Var, list[int]] = {}
    for i, eqn in enumerate(eqns):
        for a in eqn.invars:
            if type(a) is not Literal:
                readers.setdefault(root.get(a, a), []).append(i)     # type: ignore[call-overload]

    def is_row_read_again(eqn: Equation) -> bool:
        a: Atom | None = eqn.invars[0]
        while a in makers and len(readers.get(a, ())) == 1:          # type: ignore[call-overload]
            made, shape = makers[a], a.aval.shape                    # type: ignore[union-attr]
            a = next((b for b in eqns[made].invars if b.aval.shape == shape and not (
                b in makers and kinds[makers[b]].generated)), None) if (
                kinds[made].elementwise) else None
        return a is not None and len(readers.get(root.get(a, a), ())) == 2  # type: ignore

    level: dict[Atom, int] = {}        # of a value: behind how many kernels it is there
    runs: list[int] = []               # of an equation: the level that it runs at
    for i, eqn in enumerate(eqns):
        at = 0
        for a in eqn.invars:
            if a in level and level[a] > at:
                at = level[a]
        runs.append(at)
        kind = kinds[i]
        if not (kind.elementwise or kind.bitcast or (
                keeps_rows and kind.reduction and _is_of_rows(eqn) and is_row_read_again(eqn))):
            at += 1
        if at:
            for v in eqn.outvars:
                level[v] = at
    joins = [_joins(kind) for kind in kinds]
    made: dict[Var, int] = {}          # what a kernel makes: the level
    outside = {held.of(a) for a in program.outvars}
    for i in reversed(range(len(eqns))):
        if not joins[i]:
            continue
        v, uses = eqns[i].outvars[0], readers.get(eqns[i].outvars[0], ())
        if v in fused:
            runs[i] = max([runs[j] for j in uses], default=runs[i])
        elif kinds[i].elementwise:
            made[v] = runs[i]
            if v not in outside and all([joins[j] and runs[j] == runs[i] for j in uses]):
                fused.add(v)
    free: dict[Equation, list[int]] = {}
    read: set[tuple] = set()
    for i, eqn in enumerate(eqns):
        if not joins[i]:
            continue
        at = runs[i]
        shape = (eqn.invars[0] if kinds[i].reduction else eqn.outvars[0]).aval.shape
        for n, a in enumerate(eqn.invars):
            if type(a) is Literal:
                continue
            source = root.get(a, a)          # type: ignore[call-overload]
            key = (source, at, shape)
            if made.get(source) == at or key in read:
                free.setdefault(eqn, []).append(n)
            else:
                read.add(key)
    return Kernels(root, fused, free)


def _joins(kind: Kind) -> bool:
    """May it run in a kernel with others, reading what they read?"""
    return (kind.elementwise or kind.reduction) and not (
        kind.bitcast or kind.generated or kind.rearranged)


@by_types
def _is_of_rows(eqn: Equation) -> bool:
    """Does a reduction go along the last dimensions of its operand?"""
    info, rank = info_of(eqn), eqn.invars[0].aval.ndim
    dims = sorted([d for f, d, _ in info.places[0] if info.factors[f].kind == REDUCE])
    return bool(dims) and dims == list(range(rank - len(dims), rank))
