"""Replaces the steps of solving a system of linear equations by one equation.

`linalg.solve` and `inv` are traced as XLA has them: factors with rows exchanged, the right-hand
side with its rows in this order, and two triangular systems. LAPACK has a function that does all
of it, which numpy calls for a whole stack of matrices. It is faster unless there is so much to do
that calls do not count.
"""
from __future__ import annotations

import math

from ...ir.ops.linalg.decompositions import lu_p
from ...ir.ops.linalg.solve import solve_p
from ...ir.program import Atom
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites

MOST = 1 << 11                  # systems of one right-hand side each: LAPACK takes one by one,
SEVERAL = 8                     # and so many times as long as here where each has so many or more
LONGEST = 1 << 24               # multiply-adds of all


def _pays(a: Atom, b: Atom, m: Match) -> bool:
    """Are the systems of all devices few and small? Where these have one matrix, its factors are
    found once.
    """
    axes = a.aval.varying
    if not b.aval.varying <= axes:
        return False
    *batch, n, _ = a.aval.shape
    devices = math.prod([size for name, size in m.mesh.shape.items() if name in axes])
    work = (a.aval.size + 2 * b.aval.size) * n
    count = math.prod(batch) * min(b.aval.shape[-1], SEVERAL)
    return count * devices <= MOST and work * devices <= LONGEST


def _only_solves(m: Match) -> bool:
    """Are rows of the right-hand side taken in the order of the factors, that nothing else reads?
    """
    factors, numbers, d = m.maker(m.packed), m.numbers, m.b.aval.ndim - 2
    if factors is None or factors.op is not lu_p:
        return False
    packed, pivots, order = factors.outvars
    return (packed is m.packed and order is m.order
            and (m.reads(packed), m.reads(pivots), m.reads(order)) == (2, 0, 1)
            and numbers.start_index_map == numbers.collapsed_slice_dims == (d,)
            and numbers.operand_batching_dims == tuple(range(d))
            and m.dims == tuple(range(d + 1)) and m.b.aval.shape == m.eqn.outvars[0].aval.shape
            and _pays(factors.invars[0], m.b, m))


def _at_once(m: Match) -> Atom:
    factors = m.maker(m.packed)
    assert factors is not None, "as `_only_solves` says"
    return m.emit(solve_p, factors.invars[0], m.b)


_SIDES = "left_side=True, transpose_a=False, conjugate_a=False"

SOLVE_AT_ONCE = Rewrites(Rewrite("solved-at-once", f"""
    places = broadcast_in_dim order {{broadcast_dimensions=dims}}
    rows = gather b places {{dimension_numbers=numbers}}
    low = triangular_solve packed rows {{{_SIDES}, lower=True, unit_diagonal=True}}
    out = triangular_solve packed low {{{_SIDES}, lower=False, unit_diagonal=False}}
    """, _at_once, where=_only_solves, single_use=("places", "rows", "low"),
    why="one call of LAPACK's instead of dozens of numpy's"), also_drops=(lu_p,))
