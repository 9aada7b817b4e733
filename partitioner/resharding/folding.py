"""Rewrites of reshards that follow each other: two become one, or none where they undo each other.

Passes that move reshards, or write new ones, leave them next to others: x@i -> x -> x@j. Folded,
the value goes from its layout to the one that is wanted, as an all-to-all here, instead of by way
of a layout that nothing reads.
"""
from __future__ import annotations

from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Program
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites
from ...ir.rewriting.unread import without_unread
from ...ir.types import ArrayType
from ..reasons import reason_of_both


def takes(before: ArrayType, after: ArrayType) -> bool:
    """Does a change of layout gather or sum?"""
    return bool({a for e in before.entries for a in e} - {a for e in after.entries for a in e}
                or before.sharding.spec.unreduced - after.sharding.spec.unreduced)


def _merged(m: Match) -> Atom:
    """One reshard, at the place of the one that takes axes away."""
    first, second = m.maker(m.between), m.eqn
    assert first is not None
    gone = takes(m.x.aval, m.between.aval) and first.location.known
    return m.emit(reshard_p, m.x, like=first if gone else second,
                  reason=reason_of_both(first.reason, second.reason), **second.params)


FOLD_RESHARDS = Rewrites(
    Rewrite("reshard-to-its-own-layout", "out = reshard x", "x",
            where=lambda m: m.x.aval is m.eqn.outvars[0].aval, why="there is nothing to move"),
    Rewrite("reshards-in-a-row", """
        between = reshard x
        out = reshard between
        """, _merged, single_use=("between",),
            why="what is read in the last layout alone goes there at once"))


def fold_reshards(program: Program) -> Program:
    """The program without reshards that follow each other, and without those that nothing reads;
    itself where there are none.
    """
    moves = [eqn for eqn in program.eqns if eqn.op is reshard_p]
    moved = {eqn.outvars[0] for eqn in moves}
    for eqn in moves:
        if eqn.invars[0] in moved or eqn.invars[0].aval is eqn.outvars[0].aval:
            program = FOLD_RESHARDS(program)
            break
    eqns = without_unread(program.eqns, program.outvars, (reshard_p,)) if moves else program.eqns
    return program if eqns is program.eqns else program.replace(eqns=eqns)
