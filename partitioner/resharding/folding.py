"""Merges consecutive reshards: two become one, or none where they undo each other."""
from __future__ import annotations

from collections.abc import Sequence

from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Equation, Var
from ...ir.rewriting.unread import without_unread
from ...ir.types import ArrayType
from ..reasons import reason_of_both


def takes(before: ArrayType, after: ArrayType) -> bool:
    """Does a change of layout gather or sum?"""
    return bool({a for e in before.entries for a in e} - {a for e in after.entries for a in e}
                or before.sharding.spec.unreduced - after.sharding.spec.unreduced)


def _merged(first: Equation, second: Equation) -> Equation:
    """One reshard in place of two that follow each other, at the place of the one that takes axes
    away.
    """
    (source,), (between,) = first.invars, second.invars
    gone = takes(source.aval, between.aval) and first.location.known
    return second.replace(invars=(source,), reason=reason_of_both(first.reason, second.reason),
                          location=first.location if gone else second.location)


def fold_reshards(eqns: Sequence[Equation], outvars: Sequence[Atom]
                  ) -> tuple[Sequence[Equation], Sequence[Atom]]:
    """A -> B -> C becomes A -> C if nothing else reads B; A -> B -> A becomes A.

    Unread reshards are dropped. Equations without anything to fold are returned as they are.
    """
    moves = [eqn for eqn in eqns if eqn.op is reshard_p]
    moved = {eqn.outvars[0] for eqn in moves}
    if not moves or (moved.issubset(set(outvars).union(*[eqn.invars for eqn in eqns]))
                     and all([eqn.invars[0] not in moved
                              and eqn.invars[0].aval is not eqn.outvars[0].aval
                              for eqn in moves])):
        return eqns, outvars
    # readers of each reshard's operand, and its result
    uses: dict[Atom, int] = dict.fromkeys(
        [a for eqn in moves for a in (eqn.invars[0], eqn.outvars[0])], 0)
    for atoms in (*[eqn.invars for eqn in eqns], outvars):
        for atom in atoms:
            if atom in uses:
                uses[atom] += 1
    made: dict[Var, Equation] = {}
    same: dict[Atom, Atom] = {}
    apart = same.keys().isdisjoint
    out: list[Equation | None] = []
    place: dict[Equation, int] = {}
    for eqn in eqns:
        if same and not apart(eqn.invars):
            eqn = eqn.replace(invars=tuple([same.get(a, a) for a in eqn.invars]))
        if eqn.op is not reshard_p:
            out.append(eqn)
            continue
        (operand,), (result,) = eqn.invars, eqn.outvars
        first = made.get(operand) if isinstance(operand, Var) else None
        if first is not None and uses.get(operand, 0) == 1:
            out[place[first]] = None
            eqn = _merged(first, eqn)
            operand = eqn.invars[0]
        if operand.aval is result.aval:
            same[result] = operand
            uses[operand] = uses.get(operand, 0) + uses.get(result, 0) - 1
            continue
        made[result] = eqn
        place[eqn] = len(out)
        out.append(eqn)
    found = [same.get(a, a) for a in outvars] if same else list(outvars)
    return without_unread([e for e in out if e is not None], found, ops=(reshard_p,)), found
