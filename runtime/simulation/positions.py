"""Positions along a split dimension, and where the largest or smallest elements are.

Per device, positions are counted on from where the block begins: with the axes in place they count
from 0. The position of the best is found per device from the best of a block and its position, both
gathered, and the position of the first of the best: on the whole it is one search.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...ir.keys import storage_dtype
from ...ir.ops.collective import axis_index_p
from ...ir.ops.creation import iota_p
from ...ir.ops.reduction import argmax_p, argmin_p
from ...ir.program import Atom, Equation
from ..axes import collective_atoms
from ..layout import Layout, array_shape
from ..numerics import evaluator
from ..rewrites.equations import is_zeros, repeated
from .windows import made, starts_of

if TYPE_CHECKING:
    from .executor import Planner

EXTREMES = {"argmax": "reduce_max", "argmin": "reduce_min"}


def _sum(p: Planner, eqn: Equation) -> None:
    ops = p.flat.ops
    if (argmax_p not in ops and argmin_p not in ops) or eqn.params["axes"] != (0,) or (
            p.mask is not None or not _plan(p, eqn)):
        p.local(eqn)


def _plan(p: Planner, eqn: Equation) -> bool:
    """Bind the result, if it is the position of the best of all blocks."""
    (out,) = eqn.outvars
    chosen = made(p, eqn.invars[0], "select_n")
    if chosen is None or len(chosen.invars) != 3 or not is_zeros(chosen.invars[1], p.maker):
        return False
    is_mine = made(p, chosen.invars[0], "eq")
    places = made(p, chosen.invars[2], "all_gather_invariant")
    if is_mine is None or places is None:
        return False
    numbers, rank = p.maker(is_mine.invars[0]), len(out.aval.shape)
    if numbers is None or numbers.op.name != "iota" or numbers.params["dimension"] != 0:
        return False
    winner = repeated(is_mine.invars[1], p.maker, range(1, rank + 1))
    best_of = None if winner is None else p.maker(winner)
    if best_of is None or best_of.op.name not in EXTREMES or best_of.params["axes"] != (0,):
        return False
    values = made(p, best_of.invars[0], "all_gather_invariant")
    place = made(p, places.invars[0], "add")
    if values is None or place is None or values.params != places.params or (
            places.params["all_gather_dimension"] or places.params["tiled"]
            or places.params.get("axis_index_groups") is not None):
        return False
    best = made(p, values.invars[0], EXTREMES[best_of.op.name])
    at = made(p, place.invars[0], best_of.op.name)
    if best is None or at is None or at.invars != best.invars or (
            at.params["axes"] != best.params["axes"]):
        return False
    (operand,) = at.invars
    (axis,) = at.params["axes"]
    group = collective_atoms(places, p.atoms)
    if not _is_start(p, place.invars[1], operand.aval.shape[axis], group):
        return False
    x = p.value_of(operand)
    layout = x.layout
    if layout.split[axis] != group or layout.folded:
        return False
    shape = array_shape(layout, operand.aval.shape, p.atoms.size)
    split = layout.split[:axis] + layout.split[axis + 1:]
    found = Layout(layout.stack, split)
    function = evaluator(at.op, len(layout.stack), at.params, [x.kind.dtype],
                         [storage_dtype(out.aval.dtype)],
                         [array_shape(found, out.aval.shape, p.atoms.size)], [shape])
    p.all_unread(eqn, (operand,))
    p.bind(out, found, p.plan.call(function, (x.slot,), eqn))
    return True


def _is_start(p: Planner, atom: Atom, size: int, group: tuple[str, ...]) -> bool:
    """Is the value, or all of it, where the device's block of this size begins along the axes?"""
    source = atom if not atom.aval.shape else repeated(atom, p.maker, ())
    converted = None if source is None else made(p, source, "convert_element_type")
    if converted is not None:
        (source,) = converted.invars
    return source is not None and starts_of(p, source, size) == group


def _add(p: Planner, eqn: Equation) -> None:
    ops = p.flat.ops
    if iota_p not in ops or axis_index_p not in ops or not _count(p, eqn):
        p.local(eqn)


def _count(p: Planner, eqn: Equation) -> bool:
    """Bind the result, if it counts along a dimension on from where the device's block begins: the
    whole counts from 0, and the axes are in place."""
    (out,) = eqn.outvars
    shape = out.aval.shape
    for numbers, start in (eqn.invars, eqn.invars[::-1]):
        counted = made(p, numbers, "iota")
        if counted is None or numbers.aval.shape != shape:
            continue
        d = counted.params["dimension"]
        begin = start if not start.aval.shape else repeated(start, p.maker, ())
        group = None if begin is None else starts_of(p, begin, shape[d])
        if not group:
            continue
        count = shape[d] * p.atoms.count(group)
        dtype = storage_dtype(out.aval.dtype)
        if dtype.kind not in "iu" or count > np.iinfo(dtype).max:
            return False
        whole = np.arange(count, dtype=dtype).reshape(
            [count if k == d else 1 for k in range(len(shape))])
        data = np.broadcast_to(whole, [count if k == d else n for k, n in enumerate(shape)])
        layout = Layout((), tuple([group if k == d else () for k in range(len(shape))]))
        p.all_unread(eqn, ())
        p.bind(out, layout, p.plan.constant(data), tuple([k != d for k in range(len(shape))]))
        return True
    return False


STRATEGIES = {"add": _add, "reduce_sum": _sum}
