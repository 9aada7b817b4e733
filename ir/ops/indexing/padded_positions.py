"""Indexing of padded operands: positions are clamped to the rows that are not padding.

A gather clips positions to the rows that it sees, or fills out-of-bounds ones. In a padded operand
it would see the padding too, so positions inside the padding are moved beforehand: to the last real
row, or out of bounds.
"""
from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import iinfo
from ...padded import Padded, PaddedContext
from ...rules.factor import INDEXED


def bounded(context: PaddedContext, index: Padded, component: int | None, highest: int,
            beyond: int | None) -> Padded | None:
    """Index values that are above `highest` moved to it, or to `beyond` if that is given.

    component: of index vectors (the last dimension), or None for all of them.
    Returns None where the dtype cannot hold these.
    """
    x, aval = index.atom, index.atom.aval
    most, shape = iinfo(aval.dtype).max, aval.shape
    if highest >= most:
        return index
    if beyond is not None and beyond > most:
        return None
    if beyond is None:
        moved = context.call("min", x, context.full(highest, aval))
    else:
        above = context.call("gt", x, context.full(highest, aval))
        moved = context.call("select_n", above, x, context.full(beyond, aval))
    if component is not None and shape[-1] > 1:
        places = context.call("iota", dtype=aval.dtype, shape=shape, dimension=len(shape) - 1,
                              sharding=None)
        own = context.call("eq", places, context.full(component, places.aval))
        moved = context.call("select_n", own, x, moved)
    return Padded(moved, index.shape, index.fills)


def indexed_on_padding(context: PaddedContext, start_index_map: Sequence[int],
                       sizes: Sequence[int], drops: bool) -> list[Padded] | None:
    """A gather or scatter with its positions bounded. start_index_map: dimension of each component
    of an index vector. sizes: of windows. drops: whether windows beyond the ends are left out."""
    operand, index, *rest = context.operands
    for c, d in enumerate(start_index_map):
        if sizes[d] < operand.shape[d] and _gets_padding(context, d):
            found = bounded(context, index, c, operand.shape[d] - sizes[d],
                            operand.size(d) if drops else None)
            if found is None:
                return None
            index = found
    return context.by_factors([operand, index, *rest], safe=indexed(context))


def started_on_padding(context: PaddedContext, sizes: Sequence[int], first: int
                       ) -> list[Padded] | None:
    """A slice or update at starts that are values, with these bounded. sizes: of the part. first:
    the operand that is the start in dimension 0."""
    operands = list(context.operands)
    x = operands[0]
    for d, m in enumerate(sizes):
        if m < x.shape[d] and _gets_padding(context, d):
            start = bounded(context, operands[first + d], None, x.shape[d] - m, None)
            if start is None:
                return None
            operands[first + d] = start
    return context.by_factors(operands, safe=indexed(context))


def _gets_padding(context: PaddedContext, d: int) -> bool:
    """Is the operand padded along a dimension, or will be as a result of that dimension is?"""
    split = context.rule.operands[0][d]
    return context.operands[0].is_padded(d) or any([
        own == split and size != n
        for t, dims, sizes in zip(context.result_types, context.rule.results, context.sizes,
                                  strict=True)
        for n, own, size in zip(t.shape, dims, sizes, strict=True)])


def indexed(context: PaddedContext) -> tuple[int, ...]:
    """The factors along which an operand is read or written at positions."""
    return tuple([f for f, factor in enumerate(context.rule.factors) if factor.kind == INDEXED])
