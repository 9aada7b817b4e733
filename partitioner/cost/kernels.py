"""Equations grouped into kernels, as a compiler would fuse them: their memory traffic and number.

Elementwise equations and reductions with the same dependencies run in one kernel: intermediate
values are not read back, and an operand of several is read once. A value is written if something
outside its kernel reads it. GPUs also keep rows in fast memory: a row that is read once more
together with its own reduction (softmax, normalisations) is not read again, as in XLA's kernels.
Measured on an H100; docs/cost-model.md has the figures.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...ir.facts import PERMUTED
from ...ir.ops.communication.collective_kinds import equation_kind
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.rules.factor import REDUCE
from ...ir.support.caches import in_memo
from ...ir.support.disjoint_sets import DisjointSets
from ...ir.support.named_tuple import NamedTuple
from .buffers import buffers
from .kinds import Kind, by_types, info_of, kind_of, operand_bytes

_SCALAR = 16                     # bytes of one element at most
_LONGEST_ROW = 1 << 16           # elements that a kernel keeps at hand


class Kernels(NamedTuple):
    """The kernel of each equation of a program, without nested ones. moved: bytes that it
    reads and writes in memory. first: is it the first of its kernel that writes something?
    """
    moved: dict[Equation, int]
    first: set[Equation]


def moved_bytes(program: Program, keeps_rows: bool = False) -> Mapping[Equation, int]:
    """The bytes that each equation of a program (without nested ones) reads and writes in memory.
    keeps_rows: as on devices behind a switch (`Hardware.keeps_rows`).
    """
    return kernels(program, keeps_rows).moved


class _Traits(NamedTuple):
    """What kernels ask of an equation. joins: can it run in one with others that read the same
    values? moves: does it move elements, by indices too? A kernel that reads them does that where
    it can. read, written: the bytes of each operand and result, if all of them are in memory;
    largest: of those that are read.
    """
    joins: bool
    moves: bool
    read: list[int]
    written: list[int]
    largest: int


@by_types
def _traits(eqn: Equation) -> _Traits:
    op, kind, traffic = eqn.op, kind_of(eqn), eqn.op.cost.traffic
    joins = (kind.elementwise or kind.reduction) and not (
        kind.bitcast or kind.generated or PERMUTED in op.facts)
    moves = not (op.arithmetic or op.subprograms or op.effect) and equation_kind(eqn) is None
    read, written = operand_bytes(eqn)
    if traffic:
        read, written = traffic(read, written, eqn.types[0], eqn.params)
    return _Traits(joins, moves, read, written, max(read, default=0))


class _Groups(NamedTuple):
    """Which equations share kernels. root: as of buffers. fused: values that are never written.
    runs: of each equation how many kernels run before its own. traits: of each equation. made: of
    each value that others in its kernel may read, `runs` of its equation. readers: of each value.
    """
    root: dict[Var, Var]
    fused: set[Var]
    runs: list[int]
    traits: list[_Traits]
    made: dict[Var, int]
    readers: dict[Atom, list[int]]


def _groups(program: Program, keeps_rows: bool) -> _Groups:
    """Assign equations to levels and values to memory, readers first.

    Two equations that may share a kernel do so if they are at one level (`runs`); a value is never
    written if all its readers are at the level of its equation, or if it is so small that each
    reader computes it.
    """
    held = buffers(program)
    eqns, root, kinds, fused = program.eqns, held.root, held.kinds, set(held.fused)
    readers: dict[Atom, list[int]] = {}
    for i, eqn in enumerate(eqns):
        for a in eqn.invars:
            if type(a) is not Literal:
                readers.setdefault(root.get(a, a), []).append(i)     # type: ignore[call-overload]
    runs = _levels(program, root, kinds, readers, keeps_rows)
    traits = [_traits(eqn) for eqn in eqns]
    made: dict[Var, int] = {}
    results = {held.of(a) for a in program.outvars}
    for i in reversed(range(len(eqns))):
        if not traits[i].joins:
            continue
        v = eqns[i].outvars[0]
        uses = readers.get(v, ())
        if v in fused:
            runs[i] = max([runs[j] for j in uses], default=runs[i])
        elif kinds[i].elementwise:
            if v not in results and v.aval.local_nbytes <= _SCALAR:
                fused.add(v)               # computed wherever it is read
                continue
            made[v] = runs[i]
            if v not in results and all([traits[j].joins and runs[j] == runs[i] for j in uses]):
                fused.add(v)
    return _Groups(root, fused, runs, traits, made, readers)


@in_memo
def kernels(program: Program, keeps_rows: bool = False) -> Kernels:
    """The kernels of a program. keeps_rows: as for `moved_bytes`."""
    eqns = program.eqns
    root, fused, runs, traits, made, readers = _groups(program, keeps_rows)
    results = {root.get(a, a) for a in program.outvars}              # type: ignore[call-overload]
    moved: dict[Equation, int] = {}
    unread: dict[tuple[Var, int], int] = {}       # bytes not yet read by the kernels of a level
    met: dict[tuple[Var, int], int] = {}          # which equation first reads a value at a level
    shared, writing = DisjointSets[int](), list[int]()
    for i, (eqn, own, at) in enumerate(zip(eqns, traits, runs, strict=True)):
        outvars, invars = eqn.outvars, eqn.invars
        if outvars and outvars[0] in root:
            moved[eqn] = 0
            continue
        joins, read, largest, total = own.joins, own.read, own.largest, 0
        distinct = len(invars) < 2 or len({*invars}) == len(invars)
        for n, a in enumerate(invars):
            if type(a) is Literal or not distinct and a in invars[:n]:
                continue
            source = root.get(a, a)                                  # type: ignore[call-overload]
            if joins and read[n] == largest:
                shared.join(met.setdefault((source, at), i), i)
            if source in fused:
                continue
            if not joins:
                total += read[n]
            elif source not in made or made[source] != at:
                rest = unread.setdefault((source, at), source.aval.local_nbytes)
                part = min(rest, read[n])
                unread[source, at] = rest - part
                total += part
        is_written = False
        for n, v in enumerate(outvars):
            if joins:
                met[v, at] = i
            if v not in fused:
                total += own.written[n]
                is_written = True
        moved[eqn] = total
        if is_written and not (own.moves and all(
                [v not in results and len(readers.get(v, ())) == 1
                 and ((reader := traits[readers[v][0]]).joins or reader.moves) for v in outvars])):
            writing.append(i)
    return Kernels(moved, {eqns[group[0]] for group in shared.groups(writing)})


def _levels(program: Program, root: Mapping[Var, Var], kinds: Sequence[Kind],
            readers: Mapping[Atom, Sequence[int]], keeps_rows: bool) -> list[int]:
    """For each equation the number of kernels that must have run before it."""
    eqns = program.eqns
    makers: dict[Atom, int] = {v: i for i, eqn in enumerate(eqns) for v in eqn.outvars
                               } if keeps_rows else {}

    def is_row_read_again(eqn: Equation) -> bool:
        a: Atom | None = eqn.invars[0]
        while a in makers and len(readers.get(a, ())) == 1:          # type: ignore[call-overload]
            made, shape = makers[a], a.aval.shape                    # type: ignore[union-attr]
            a = next((b for b in eqns[made].invars if b.aval.shape == shape and not (
                b in makers and kinds[makers[b]].generated)), None) if (
                kinds[made].elementwise) else None
        return a is not None and len(readers.get(root.get(a, a), ())) == 2  # type: ignore

    level: dict[Atom, int] = {}
    runs: list[int] = []
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
    return runs


@by_types
def _is_of_rows(eqn: Equation) -> bool:
    """Does a reduction go over the last dimensions of its operand, with rows short enough for a
    kernel to hold several?
    """
    info, shape = info_of(eqn), eqn.invars[0].aval.shape
    dims = sorted([d for f, d, _ in info.places[0] if info.factors[f].kind == REDUCE])
    first = len(shape) - len(dims)
    return bool(dims) and dims == [*range(first, len(shape))] and (
        math.prod(shape[:first]) > 1 and math.prod(shape[first:]) <= _LONGEST_ROW)
