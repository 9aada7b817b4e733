"""Rewrites of the per-device program that save communication.

Each works on one or two adjacent equations and keeps the program's meaning and its reasons:

    hoist           a collective of what a loop does not change is done before it (hoist.py)
    dedupe          equal equations are computed once, and so their collectives done once
    fold_gathers    an own-block slice of what was gathered along the same axes is the block itself
    form_scatters   an all-reduce of which every device keeps its own block is a reduce-scatter
    drop_dead       what nothing reads is not computed
    share_rows      rows of one value that devices lack come in one exchange (shared_rows.py)
    combine         small exchanges that do not wait for each other become one (combine.py)

Bodies of loops and branches are rewritten likewise.
"""
from __future__ import annotations

from collections.abc import Callable

from ...ir.ops.communication.collective import (
    all_slice_p,
    axis_index_p,
    psum_invariant_p,
    pvary_p,
    reduce_scatter_p,
)
from ...ir.ops.communication.exchange_rows import exchange_rows_p
from ...ir.phases import in_phase
from ...ir.program import Atom, Equation, Program
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites
from ...ir.rewriting.unread import drop_dead
from ..redistribution.moves import group_size
from ..regions import inside
from ..resharding.delay import joined_reasons
from .combine import combine
from .hoist import hoist
from .shared_rows import share_rows


def optimize(program: Program) -> Program:
    """The pass: all rewrites, in the order in which one makes room for the next.

    What is combined hides its parts from the others, so that comes last, in all programs.
    """
    return _combined(_simplified(program))


def _simplified(program: Program) -> Program:
    ops = program.ops
    rewrites: tuple[Callable[[Program], Program], ...] = _USUAL
    if program.holds_programs:
        program = inside(program, _simplified)
        rewrites = (hoist, *rewrites)
    if all_slice_p in ops:                  # what the other two end with
        rewrites = (*rewrites[:-1], FOLD_GATHERS, FORM_SCATTERS, drop_dead)
    if exchange_rows_p in ops:
        rewrites = (*rewrites, share_rows)
    for rewrite in rewrites:
        program = in_phase(getattr(rewrite, "__name__", "rw"), rewrite, program)
    return program


def _combined(program: Program) -> Program:
    if program.holds_programs:
        program = inside(program, _combined)
    return in_phase("combine", combine, program)


class _Rewriting:
    """New equations, and what each variable has become."""

    def __init__(self) -> None:
        self.eqns: list[Equation] = []
        self.now: dict[Atom, Atom] = {}

    def renamed(self, eqn: Equation) -> Equation:
        if self.now and not self.now.keys().isdisjoint(eqn.invars):
            return eqn.replace(invars=tuple(self.now.get(a, a) for a in eqn.invars))
        return eqn

    def program(self, program: Program) -> Program:
        if len(self.eqns) == len(program.eqns) and not self.now:
            return program
        return program.replace(eqns=self.eqns,
                               outvars=[self.now.get(a, a) for a in program.outvars])


def dedupe(program: Program) -> Program:
    # without operands they are new values each, but for where a device is
    pure = {op for op in program.ops if not op.effect and not op.subprograms}
    computed = [(e.use.identity, e.invars) for e in program.eqns if e.op in pure
                and (e.invars or e.op is axis_index_p)]
    if len(set(computed)) == len(computed):
        return program
    out = _Rewriting()
    eqns, now = out.eqns, out.now
    seen: dict[tuple, int] = {}               # what an equation computes -> its number
    for eqn in program.eqns:
        if now:
            eqn = out.renamed(eqn)
        op = eqn.op
        if op in pure and (eqn.invars or op is axis_index_p):
            count = len(eqns)
            number = seen.setdefault((eqn.use.identity, eqn.invars), count)
            if number < count:
                first = eqns[number]
                now.update(zip(eqn.outvars, first.outvars, strict=True))
                if eqn.reason and eqn.reason != first.reason:
                    eqns[number] = first.replace(
                        reason=joined_reasons((*first.reason.split("; "), eqn.reason)))
                continue
        eqns.append(eqn)
    return out.program(program)


FOLD_GATHERS = Rewrites(Rewrite(
    "own-block-of-gathered", """
    gathered = all_gather_invariant x {axis_name=axes, all_gather_dimension=dimension, tiled=True}
    out = all_slice gathered {axes, dimension}
    """, "x", why="a device has the block that it would take of what all have gathered"))


def _scattered(m: Match) -> Atom:
    total, x = m.maker(m.total), m.x
    assert total is not None
    missing = tuple([a for a in m.axes if a not in x.aval.varying])
    if missing:
        x = m.emit(pvary_p, x, like=total, axes=missing)
    out = m.emit(reduce_scatter_p, x, like=total, reason="; ".join(dict.fromkeys(
        r for r in (total.reason, m.eqn.reason) if r)), axis_name=m.axes,
        axis_size=group_size(m.mesh, m.axes), scatter_dimension=m.dimension, tiled=True)
    rest = tuple([a for a in m.summed if a not in m.axes])
    return m.emit(psum_invariant_p, out, like=total, axes=rest) if rest else out


FORM_SCATTERS = Rewrites(Rewrite(
    "own-block-of-sum", """
    total = psum_invariant x {axes=summed}
    out = all_slice total {axes, dimension}
    """, _scattered, once=("total",), where=lambda m: {*m.axes} <= {*m.summed},
    why="a reduce-scatter moves half of what an all-reduce does"))


_USUAL = (dedupe, drop_dead)        # of programs without loops
