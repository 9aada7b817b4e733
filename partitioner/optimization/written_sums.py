"""What is added to an array that sums are written into, at indices, is added before.

The gradient of a loss that takes scores at labels is a sum of two terms, one of which is zero but
for few elements:

    picked = scatter-add zeros labels slopes
    out = add_any shares picked

So `slopes` are added to `shares` where they belong, in place, and no array of zeros is written and
read. XLA's algebraic simplifier does the same.
"""
from __future__ import annotations

from ...ir.ops.indexing.scatter import scatter_add_p
from ...ir.program import Var
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites


def _written_into_sum(m: Match) -> Var | None:
    """The sums written into the other operand and the base, if they have the type of the result."""
    number, written = m.constant_of(m.base), m.maker(m.picked)
    assert written is not None, "the pattern has what makes it"
    base = m.other if number is not None and not number.val else m.emit(m.eqn.op, m.other, m.base)
    if base.aval.shape != m.base.aval.shape or base.aval.dtype != m.base.aval.dtype:
        return None
    out = m.emit(scatter_add_p, base, m.indices, m.updates, **written.params)
    return out if out.aval == m.eqn.outvars[0].aval else None


WRITTEN_SUMS = Rewrites(Rewrite(
    "sums-written-into-a-sum",
    "picked = scatter-add base indices updates\nout = add|add_any other picked",
    _written_into_sum, single_use=("picked",),
    why="what is added is neither written apart nor read again"))
