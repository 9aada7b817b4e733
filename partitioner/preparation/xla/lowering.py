"""Equations as JAX lowers them, where that affects the plan that XLA makes.

`x[:, None] - x[None]` repeats both operands along a dimension of size one. JAX lowers it to two
broadcasts and a subtraction of whole arrays, each of which has a layout and may be moved.

A lookup that fills out-of-bounds elements is lowered to a mask, a lookup within bounds, and a
select. XLA chooses the layout of the mask separately, so its indices may be moved twice.
"""
from __future__ import annotations

import numpy as np

from ....ir.ops.elementwise.bitwise import and_p
from ....ir.ops.elementwise.comparison import ge_p, le_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.ops.gather_numbers import GatherScatterMode
from ....ir.ops.indexing.gather_evaluation import fill_constant
from ....ir.ops.movement.shape import broadcast_in_dim_p
from ....ir.ops.reductions.reduction import reduce_and_p
from ....ir.program import Atom, Equation, Literal, Program, Var
from ....ir.rewriting.inside import inside
from ....ir.rewriting.rewrite import Match, Rewrite
from ....ir.rules.rule import ELEMENTWISE
from ....ir.types import array_type


def broadcast_operands(program: Program) -> Program:
    """The program, nested ones included, with the operands of elementwise equations broadcast to
    the shape of the result beforehand.
    """
    program = inside(program, broadcast_operands)
    eqns: list[Equation] = []
    for eqn in program.eqns:
        if eqn.op.rule == ELEMENTWISE:
            shape = eqn.outvars[0].aval.shape
            operands: list[Atom] = []
            for x in eqn.invars:
                if len(x.aval.shape) == len(shape) and x.aval.shape != shape:
                    whole = Var(x.aval.update(shape=shape))
                    params = {"shape": shape, "broadcast_dimensions": tuple(range(len(shape))),
                              "sharding": None}
                    eqns.append(Equation(broadcast_in_dim_p, (x,), (whole,), params, eqn.location))
                    x = whole
                operands.append(x)
            if any([x is not y for x, y in zip(operands, eqn.invars, strict=True)]):
                eqn = eqn.replace(invars=operands)
        eqns.append(eqn)
    return program if len(eqns) == len(program.eqns) else program.replace(eqns=eqns)


def _fills(m: Match) -> bool:
    """Is it a lookup of numbers along one dimension that fills what lies outside, and are all of
    them Auto, so that the mask has the type of the indices?
    """
    types = [v.aval for v in (m.x, m.indices, *m.eqn.outvars)]
    return (m.mode is GatherScatterMode.FILL_OR_DROP and len(m.numbers.start_index_map) == 1
            and m.indices.__class__ is not Literal and isinstance(m.x.aval.dtype, np.dtype)
            and not any([t.varying or t.unreduced or any(t.entries) for t in types]))


def _with_mask(m: Match) -> Atom:
    """A lookup with a fill value, as a lookup of clamped indices, and a select between what it
    finds and the fill by a mask of the indices that are within bounds.
    """
    given, out = m.indices.aval, m.eqn.outvars[0].aval
    (d,) = m.numbers.start_index_map

    def full(value: object, shape: tuple[int, ...], dtype: np.dtype, weak: bool = False) -> Atom:
        return m.full(Literal(value, array_type((), dtype, weak)), shape)
    last = m.x.aval.shape[d] - m.sizes[d]
    low, high = (full(np.asarray(n, given.dtype)[()], given.shape, given.dtype) for n in (0, last))
    inside = m.emit(and_p, m.emit(ge_p, m.indices, low), m.emit(le_p, m.indices, high))
    inside = m.emit(reduce_and_p, inside, axes=(len(given.shape) - 1,))
    inside = m.emit(broadcast_in_dim_p, inside, shape=out.shape, sharding=None,
                    broadcast_dimensions=tuple([k for k in range(len(out.shape))
                                                if k not in m.numbers.offset_dims]))
    found = m.emit(m.eqn.op, m.x, m.indices, **{
        **m.eqn.params, "mode": GatherScatterMode.CLIP, "fill_value": None})
    fill = np.asarray(fill_constant(out.dtype, m.fill), out.dtype)[()]
    return m.emit(select_n_p, inside, full(fill, out.shape, out.dtype, out.weak_type),
                  found)


FILL_APART = Rewrite(
    "fill", """
    out = gather x indices {dimension_numbers=numbers, slice_sizes=sizes, mode, fill_value=fill}
    """, _with_mask, where=_fills, why="the mask is laid out by itself")
