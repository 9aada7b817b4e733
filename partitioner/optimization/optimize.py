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

from ...ir.manual_state import ManualState
from ...ir.ops.communication.collective import (
    all_gather_invariant_p,
    all_slice_p,
    axis_index_p,
    psum_invariant_p,
    pvary_p,
    reduce_scatter_p,
)
from ...ir.ops.communication.exchange_rows import exchange_rows_p
from ...ir.phases import in_phase
from ...ir.program import Atom, Equation, Program, Var
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
        rewrites = (*rewrites[:-1], fold_gathers, form_scatters, drop_dead)
    if exchange_rows_p in ops:
        rewrites = (*rewrites, share_rows)
    for rewrite in rewrites:
        program = in_phase(rewrite.__name__, rewrite, program)
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


def fold_gathers(program: Program) -> Program:
    gathered: dict[Atom, Equation] = {
        eqn.outvars[0]: eqn for eqn in program.eqns
        if eqn.op is all_gather_invariant_p and eqn.params["tiled"]}
    if not any([eqn.op is all_slice_p and eqn.invars[0] in gathered for eqn in program.eqns]):
        return program
    out = _Rewriting()
    for eqn in program.eqns:
        eqn = out.renamed(eqn)
        if eqn.outvars and eqn.outvars[0] in gathered:
            gathered[eqn.outvars[0]] = eqn
        elif eqn.op is all_slice_p and eqn.invars[0] in gathered:
            made = gathered[eqn.invars[0]]
            if (made.params["axis_name"] == eqn.params["axes"]
                    and made.params["all_gather_dimension"] == eqn.params["dimension"]):
                out.now[eqn.outvars[0]] = made.invars[0]
                continue
        out.eqns.append(eqn)
    return out.program(program)


def _uses(program: Program) -> dict[Atom, list[Equation | None]]:
    """The equations that read each variable; None stands for the program's results."""
    uses: dict[Atom, list[Equation | None]] = {}
    for eqn in program.eqns:
        for atom in eqn.invars:
            uses.setdefault(atom, []).append(eqn)
    for atom in program.outvars:
        uses.setdefault(atom, []).append(None)
    return uses


def form_scatters(program: Program) -> Program:
    if psum_invariant_p not in program.ops:
        return program
    uses = _uses(program)
    out = _Rewriting()
    cut: dict[Equation, Equation] = {}        # the slice of an all-reduce -> the all-reduce
    for eqn in program.eqns:
        if eqn.op is not psum_invariant_p:
            continue
        readers = uses.get(eqn.outvars[0], [])
        if len(readers) == 1 and readers[0] is not None and readers[0].op is all_slice_p:
            if set(readers[0].params["axes"]) <= set(eqn.params["axes"]):
                cut[readers[0]] = eqn
    if not cut:
        return program
    dropped = set(cut.values())
    for eqn in program.eqns:
        if eqn in dropped:
            continue
        if eqn not in cut:
            out.eqns.append(eqn)
            continue
        total = cut[eqn]
        axes = eqn.params["axes"]
        rest = tuple(a for a in total.params["axes"] if a not in axes)
        operand = total.invars[0]
        mesh = program.mesh
        missing = tuple(a for a in axes if a not in operand.aval.varying)
        if missing:
            m = operand.aval.manual
            cast = Var(operand.aval.update(manual=ManualState(
                m.varying | frozenset(missing), m.unreduced, m.reduced)))
            out.eqns.append(Equation(pvary_p, (operand,), (cast,), {"axes": missing},
                                     total.location, total.reason))
            operand = cast
        result = eqn.outvars[0]
        if rest:
            m = result.aval.manual
            result = Var(result.aval.update(manual=ManualState(
                m.varying | (frozenset(rest) & operand.aval.varying), m.unreduced, m.reduced)))
        reason = "; ".join(dict.fromkeys(r for r in (total.reason, eqn.reason) if r))
        out.eqns.append(Equation(reduce_scatter_p, (operand,), (result,), {
            "axis_name": axes, "axis_size": group_size(mesh, axes),
            "scatter_dimension": eqn.params["dimension"], "tiled": True}, total.location, reason))
        if rest:
            out.eqns.append(Equation(psum_invariant_p, (result,), eqn.outvars, {"axes": rest},
                                     total.location, total.reason))
    return program.replace(eqns=out.eqns)


def drop_dead(program: Program) -> Program:
    live: set[Atom] = set(program.outvars)
    kept: list[Equation] = []
    for eqn in reversed(program.eqns):
        results = eqn.outvars
        if not (results and live.isdisjoint(results)) or eqn.effects:
            kept.append(eqn)
            live.update(eqn.invars)
    if len(kept) == len(program.eqns):
        return program
    kept.reverse()
    return program.replace(eqns=kept)


_USUAL = (dedupe, drop_dead)        # of programs without loops
