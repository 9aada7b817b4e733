"""Leaves out what turns negative indices into positive ones where there are none.

`x[i]` counts negative indices from the end: as in JAX, it is traced with a comparison, a sum and a
choice for each index. Indices that were computed are seldom negative: positions of the largest
elements or of an order, those that an iota counts, and what was clipped at zero.
"""
from __future__ import annotations

from ...ir.facts import COUNTS, VIEW
from ...ir.ops.elementwise.arithmetic import max_p, min_p
from ...ir.ops.elementwise.select import clamp_p
from ...ir.ops.reductions.sorting import sort_p, top_k_p
from ...ir.program import Atom, Literal
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites


def is_never_negative(m: Match, x: Atom) -> bool:
    """Is a value of a program known to have no negative element, by the equation that makes it?"""
    if isinstance(x, Literal):
        return bool(x.val >= 0)
    eqn = m.maker(x)
    while eqn is not None and VIEW in eqn.op.facts and not eqn.op.multiple_results:
        x = eqn.invars[0]
        eqn = m.maker(x)
    if eqn is None:
        return False
    if eqn.op is max_p:
        return any([is_never_negative(m, a) for a in eqn.invars])
    if eqn.op is min_p:
        return all([is_never_negative(m, a) for a in eqn.invars])
    if eqn.op is clamp_p:
        low, _, high = eqn.invars
        return is_never_negative(m, low) and is_never_negative(m, high)
    if eqn.op is sort_p:                        # moved together with what orders them
        return is_never_negative(m, eqn.invars[eqn.outvars.index(x)])
    if eqn.op is top_k_p:
        return x is eqn.outvars[1]
    return COUNTS in eqn.op.facts


COUNT_FROM_FRONT = Rewrites(Rewrite("counted-from-the-front", """
    negative = lt i 0
    behind = add i size
    out = select_n negative i behind
    """, "i", where=lambda m: m.i.aval == m.eqn.outvars[0].aval and is_never_negative(m, m.i),
    why="three passes over the indices less"))
