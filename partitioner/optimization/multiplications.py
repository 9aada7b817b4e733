"""Products without a contracted dimension, rewritten as multiplications.

`einsum("be,bef->bef", gates, hidden)` is a product over no dimension:

    h = dot_general[dimension_numbers=(((), ()), ((0, 1), (0, 1)))] g t

It multiplies each row by its gate, and as a multiplication it can be fused with its neighbours.
XLA's algebraic simplifier does the same, also after partitioning.
"""
from __future__ import annotations

from ...ir.ops.elementwise.arithmetic import mul_p
from ...ir.ops.elementwise.convert import convert_element_type_p
from ...ir.ops.movement.shape import broadcast_in_dim_p, transpose_p
from ...ir.program import Literal, Var
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites


def _multiplied(m: Match) -> Var | None:
    """The multiplication, if it has the type of the product."""
    result, batch = m.eqn.outvars[0].aval, m.numbers[1]
    rank, shared = len(result.shape), len(batch[0])
    operands, ahead = [], shared
    for x, own in zip(m.eqn.invars, batch, strict=True):
        order = (*own, *[d for d in range(x.aval.ndim) if d not in own])
        if order != tuple(range(len(order))):
            x = m.emit(transpose_p, x, permutation=order)
        dims = (*range(shared), *range(ahead, ahead + len(order) - shared))
        ahead += len(order) - shared
        if len(dims) < rank:
            shape = tuple([result.shape[d] if d in dims else 1 for d in range(rank)])
            x = m.emit(broadcast_in_dim_p, x, shape=shape, broadcast_dimensions=dims, sharding=None)
        if x.aval.dtype != result.dtype:
            x = m.emit(convert_element_type_p, x, new_dtype=result.dtype, weak_type=False,
                       sharding=None)
        operands.append(x)
    out = m.emit(mul_p, *operands)
    return out if out.aval == result else None


MULTIPLICATIONS = Rewrites(Rewrite(
    "multiplication", "out = dot_general a b {dimension_numbers=numbers}", _multiplied,
    why="what adds nothing up is fused", where=lambda m: not m.numbers[0][0] and not any(
        [x.__class__ is Literal for x in m.eqn.invars])))
