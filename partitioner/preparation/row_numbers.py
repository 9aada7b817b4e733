"""Rewrites lookups and updates in each row, such as `x[arange(n), i]`, as batched ones.

If a component of the index counts the rows of a dimension, row k is looked up in row k. As a
batching dimension of the gather or scatter this dimension is split like any other, and no device
needs rows of another. XLA's partitioner finds such components, too.
"""
from __future__ import annotations

from ...ir.facts import BITCAST, PERMUTED, REPEATS
from ...ir.ops.elementwise.convert import convert_element_type_p
from ...ir.ops.gather_numbers import GatherDimensionNumbers
from ...ir.ops.movement.creation import iota_p
from ...ir.ops.movement.joining import concatenate_p
from ...ir.program import Atom
from ...ir.rewriting.rewrite import Match, Rewrite, Shape
from ..propagation.divisibility import may_be_split

_STEPS = 8              # equations from an index back to what counts
_SAME_ELEMENTS = (BITCAST, PERMUTED, REPEATS)


# A place below 0, of which there are none, counts from the end.
_FROM_EITHER_END = Shape("below = lt place 0\nout = select_n below place other")


def _counted(m: Match, atom: Atom, left: int = _STEPS) -> int | None:
    """The dimension along which a value is 0, 1, 2, ...; None if it is not.

    (An analysis and no shape: any number of equations may hand the numbers on.)
    """
    eqn = m.maker(atom)
    if eqn is None or not left:
        return None
    if eqn.op is iota_p:
        return eqn.params["dimension"]
    places = m.made_as(atom, _FROM_EITHER_END)
    if places is not None:
        return _counted(m, places.place, left - 1)
    if len(eqn.invars) != 1 or (eqn.op is not convert_element_type_p
                                and eqn.op.facts.isdisjoint(_SAME_ELEMENTS)):
        return None
    (x,) = eqn.invars
    d = _counted(m, x, left - 1)
    if d is None:
        return None
    rule = eqn.op.factor_rule((x.aval.shape,), (atom.aval.shape,), eqn.params)
    own = rule.operands[0][d]
    return rule.results[0].index(own) if len(own) == 1 and own in rule.results[0] else None


def _by_number(m: Match) -> Atom | None:
    """The gather or scatter with a component that counts rows as a batching dimension."""
    eqn, columns = m.eqn, m.maker(m.at)
    at, numbers = m.at.aval.shape, GatherDimensionNumbers(*m.numbers)
    last = len(at) - 1
    if (columns is None or columns.op is not concatenate_p or columns.params["dimension"] != last
            or any(c.aval.shape[last] != 1 for c in columns.invars)):
        return None
    for j, (column, d) in enumerate(zip(columns.invars, numbers.start_index_map, strict=True)):
        b = _counted(m, column)
        if b is None or b == last or d not in numbers.collapsed_slice_dims or (
                at[b] != m.x.aval.shape[d] or b in numbers.start_indices_batching_dims):
            continue
        pairs = sorted([*zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims,
                             strict=True), (d, b)])
        rest = [c for c in columns.invars if c is not column]
        index = rest[0] if len(rest) == 1 else m.emit(concatenate_p, *rest, dimension=last)
        new = type(m.numbers)(
            numbers.offset_dims, tuple([k for k in numbers.collapsed_slice_dims if k != d]),
            tuple([k for i, k in enumerate(numbers.start_index_map) if i != j]),
            tuple([k for k, _ in pairs]), tuple([k for _, k in pairs]))
        found = m.emit(eqn.op, m.x, index, *eqn.invars[2:], **{
            **eqn.params, "dimension_numbers": new, "indices_are_sorted": False})
        return found if found.aval == eqn.outvars[0].aval else None
    return None


def _is_plain(m: Match) -> bool:
    return may_be_split(m) and not m.mesh.explicit_axes


_WHY = "row k is looked up in row k, wherever that is"
ROWS_BY_NUMBER = (
    Rewrite("rows-read-by-number", "out = gather x at {dimension_numbers=numbers}", _by_number,
            where=_is_plain, why=_WHY),
    Rewrite("rows-written-by-number",
            "out = scatter|scatter-add x at updates {dimension_numbers=numbers}", _by_number,
            where=_is_plain, why=_WHY))
