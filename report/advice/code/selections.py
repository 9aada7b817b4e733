"""Rewrites of the user's code that select, cut or swap what is exchanged before the exchange.

    NAME                  instead of                              written
    top first             top_k of a value computed from a gather top_k of each block, then of these
    place first           argmax of such a value                  that of each block, then of these
    top of rows           top_k of concatenated rows              top_k of each, then of these
    top instead of sort   the first, or last, elements of a sort  top_k
    product first         a product with rows that were read      reading rows of the product
"""
from __future__ import annotations

import ast
from typing import Any

from ....ir.op import OPS, Op
from ....ir.ops.gather_numbers import GatherDimensionNumbers, GatherScatterMode
from ....ir.program import Atom
from ....ir.rewriting.rewrite import Match, Rewrite, Shape
from .blocks import Blocks
from .lines.expressions import axes_text, expression, gathered_in
from .lines.statements import Edit, call_of, has_module, statement_of, unused
from .rewrites import CodeChange, fit, varying_as

_PLACES = {"argmax": "reduce_max", "argmin": "reduce_min"}
_FEW = 4        # times as many there are at least of what is chosen


# -- the largest of each block --------------------------------------------------------------------

def _places(m: Match, dim: int, size: int, at: Atom, places: Atom, each: int) -> Atom:
    """Where in the whole the entries are that were chosen: `at` among those chosen of all blocks,
    of which each has `each`, whose places in their blocks, of this size, are `places`."""
    ndim = at.aval.ndim
    others = tuple([d for d in range(ndim) if d != dim])
    rows = m.emit(OPS["reshape"], at, new_sizes=(*at.aval.shape, 1), dimensions=None, sharding=None)
    place = m.emit(OPS["gather"], places, rows, dimension_numbers=GatherDimensionNumbers(
        (), (dim,), (dim,), others, others), slice_sizes=(1,) * ndim, indices_are_sorted=False,
        unique_indices=False, mode=GatherScatterMode.PROMISE_IN_BOUNDS, fill_value=None)

    def number(n: int) -> Atom:
        return varying_as(m, at.aval.dtype.type(n), at)

    block_at = m.emit(OPS["div"], at, number(each))
    first = m.emit(OPS["mul"], block_at, number(size))
    return m.emit(OPS["add"], first, place)


def _top_first(m: Match) -> list[Atom] | None:
    """What is chosen of each block, then of those few on all devices."""
    blocks = Blocks(m)
    found = blocks.factor(m.eqn)
    if found is None or found[0].factors[found[1]].size <= m.k * blocks.count or (
            not blocks.exchanged(m.eqn, *found)):
        return None
    values = [fit(m, v, i) for i, v in enumerate(blocks.of_blocks(m.eqn, *found) or ())]
    return None if not values or None in values else values     # type: ignore[return-value]


def _top_first_code(m: Match) -> str | tuple[Edit, ...]:
    """That as the user's code: where the places are not read, in one expression, otherwise in lines
    before the statement.
    """
    found, call = gathered_in(m, m.whole), call_of(expression(m.eqn), "top_k")
    if found is None or call is None or found.gather.params["all_gather_dimension"] != m.axis or (
            not found.gather.params["tiled"]
            or found.whole != ast.get_source_segment(expression(m.eqn), call.args[0])):
        return ""
    behind = expression(m.eqn)[call.args[0].end_col_offset:]

    def top(operand: str) -> str:
        return f"{ast.unparse(call.func)}({operand}{behind}"

    reads = [a for e in m.program.eqns for a in e.invars]
    if m.eqn.outvars[1] not in (*reads, *m.program.outvars):
        return top(found.of(f"{top(found.part)}[0]"))
    at, stand = m.eqn.location, statement_of(m.eqn.location)
    if stand is None or not has_module(at, "jnp") or not found.module:
        return ""
    best, places, chosen = unused(at, "best", "places", "chosen")
    size = found.gather.invars[0].aval.shape[m.axis]
    first = f"{found.module}axis_index({axes_text(found.gather.axes)}) * {size}"
    return (stand.with_lines([
        f"{best}, {places} = {top(found.part)}",
        f"{best}, {chosen} = {top(found.of(best))}",
        f"{places} = jnp.take_along_axis({found.of(f'{places} + {first}')}, {chosen}, {m.axis})"],
        stand.replaced(expression(m.eqn), [best, places])),)


def _top_of_rows(m: Match) -> list[Atom] | None:
    """The largest of all rows are among the largest of each: rows that become one are not moved."""
    rows, lead = m.rows.aval.shape, m.whole.aval.ndim - 1
    if (m.axis != lead or len(rows) < lead + 2 or rows[:lead] != m.whole.aval.shape[:-1]
            or m.dimensions is not None or m.k * _FEW > rows[-1]):
        return None
    each, within = m.emit(m.eqn.op, m.rows, axis=len(rows) - 1, k=m.k)
    size = (*rows[:lead], m.whole.aval.shape[-1] // rows[-1] * m.k)

    def concatenated(of_rows: Atom) -> Atom:
        return m.emit(OPS["reshape"], of_rows, new_sizes=size, dimensions=None, sharding=None)

    values, at = m.emit(m.eqn.op, concatenated(each), axis=lead, k=m.k)
    found = [fit(m, values), fit(m, _places(m, lead, rows[-1], at, concatenated(within), m.k), 1)]
    return None if None in found else found      # type: ignore[return-value]


def _place_first(m: Match) -> Atom | None:
    """The place of the largest of each block, then of those few over all devices."""
    blocks = Blocks(m)
    found, gather = blocks.of(m.whole), blocks.gather
    if found is None or gather is None or tuple(m.axes) != found[1:] or (
            found[0].aval.shape[found[1]] < 2):
        return None
    x, d = found
    one = (*x.aval.shape[:d], 1, *x.aval.shape[d + 1:])

    def column(value: Atom) -> Atom:
        return m.emit(OPS["reshape"], value, new_sizes=one, dimensions=None, sharding=None)

    reductions: list[tuple[Op, dict[str, Any]]] = [
        (OPS[_PLACES[m.eqn.op.name]], {"axes": (d,)}), (m.eqn.op, m.eqn.params)]
    values, places = [m.emit(gather.op, column(m.emit(op, x, **params)), like=gather, **{
        **gather.params, "all_gather_dimension": d, "tiled": True}) for op, params in reductions]
    at = column(m.emit(m.eqn.op, values, **m.eqn.params))
    place = m.emit(OPS["reshape"], _places(m, d, x.aval.shape[d], at, places, 1),
                   new_sizes=m.eqn.outvars[0].aval.shape, dimensions=None, sharding=None)
    return fit(m, place)


# -- the largest of all, without a sort -----------------------------------------------------------

_TURNED = Shape("turned = rev straight {dimensions=turns}")
_COUNTED = Shape("places = iota {dimension=along}")


def _turned(m: Match, atom: Atom, d: int) -> Atom | None:
    """What a value is the other way round of, along a dimension."""
    found = m.made_as(atom, _TURNED)
    return found.straight if found is not None and tuple(found.turns) == (d,) else None


def _top_instead_of_turned(m: Match) -> Atom | None:
    return _top_instead(m, True) if tuple(m.turns) == (m.d,) else None


def _top_instead(m: Match, turned: bool = False) -> Atom | None:
    """Equal where nothing is NaN, and of places where no two are equal: of such it takes the first.
    """
    whole, cut, d = m.ordered.aval.shape, m.eqn.outvars[0].aval.shape, m.d
    n, k = whole[d], cut[d]
    if (cut != (*whole[:d], k, *whole[d + 1:]) or k * _FEW > n or m.starts[d] not in (0, n - k)
            or m.steps is not None and set(m.steps) != {1}):
        return None
    sort = m.maker(m.ordered)
    largest = (m.starts[d] > 0) != turned
    key, which = m.key, sort.outvars.index(m.ordered)       # type: ignore[union-attr]
    mirrored = _turned(m, key, d)
    if which:
        key = key if mirrored is None else mirrored
        places = m.others[which - 1] if mirrored is None else _turned(m, m.others[which - 1], d)
        counted = None if places is None else m.made_as(places, _COUNTED)
        if counted is None or counted.along != d:
            return None
    if key.aval.dtype.kind in "biu" and (which or not largest):
        return None
    if not largest:
        key = m.emit(OPS["neg"], key)
    found = m.emit(OPS["top_k"], key, axis=d, k=k)[1 if which else 0]
    if not which and not largest:
        found = m.emit(OPS["neg"], found)
    if largest != turned:
        found = m.emit(OPS["rev"], found, dimensions=(d,))
    return fit(m, found)


# -- rows of a product ---------------------------------------------------------------------------

def _product_first(m: Match) -> Atom | None:
    """The rows of a matrix multiplied before they are read."""
    rows, numbers = m.maker(m.rows), m.numbers
    (left, right), batch = m.dims
    ndim = m.rows.aval.ndim
    fill = rows.params["fill_value"] if rows is not None else None
    if (rows is None or m.x.aval.ndim != 2 or any(batch) or tuple(left) != (ndim - 1,)
            or m.eqn.params.get("out_sharding") is not None or numbers.operand_batching_dims
            or tuple(numbers.offset_dims) != (ndim - 1,) or fill is not None and fill == fill
            and fill != 0 or m.eqn.outvars[0].aval.dtype.kind in "biu"
            or tuple(numbers.start_index_map) != tuple(numbers.collapsed_slice_dims)):
        return None
    (row,) = numbers.collapsed_slice_dims
    if m.sizes[1 - row] != m.x.aval.shape[1 - row]:
        return None
    product = m.emit(m.eqn.op, m.x, m.w, **{
        **m.eqn.params, "dimension_numbers": (((1 - row,), right), ((), ()))})
    inner = product.aval.shape[1:]
    read = numbers._replace(offset_dims=tuple(range(ndim - 1, ndim - 1 + len(inner))),
                            collapsed_slice_dims=(0,), start_index_map=(0,))
    return fit(m, m.emit(rows.op, product, m.at, like=rows, **{
        **rows.params, "dimension_numbers": read, "slice_sizes": (1, *inner)}))


_SORTED = "ordered = sort key *others {dimension=d, num_keys=1}\n"
_CUT = "out = slice {} {{start_indices=starts, strides=steps}}"
_TOP = ("of each block only what can be among those few is exchanged",
        "choose by `lax.top_k` instead of sorting all (of equal ones it takes the first)")
SELECTIONS: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "top first", "out = top_k whole {axis, k}", _top_first,
        why="of each block only what can be among the largest is exchanged"),
        "choose from each block before the exchange instead of gathering all", _top_first_code),
    CodeChange(Rewrite(
        "place first", "out = argmax|argmin whole {axes}", _place_first,
        why="of each block only the best is exchanged, and where it is"),
        "choose from each block before the exchange instead of gathering all"),
    CodeChange(Rewrite(
        "top of rows", "whole = reshape rows {dimensions}\nout = top_k whole {axis, k}",
        _top_of_rows, why="rows stay where they are, and of each only the largest is exchanged"),
        "choose from each row before rows are joined, then among what was chosen,"),
    CodeChange(Rewrite("top instead of sort", _SORTED + _CUT.format("ordered"), _top_instead,
                       why=_TOP[0]), _TOP[1]),
    CodeChange(Rewrite(
        "top instead of turned sort", _SORTED + "turned = rev ordered {dimensions=turns}\n"
        + _CUT.format("turned"), _top_instead_of_turned, why=_TOP[0]), _TOP[1]),
    CodeChange(Rewrite(
        "product first", "rows = gather x at {dimension_numbers=numbers, slice_sizes=sizes}\n"
        "out = dot_general rows w {dimension_numbers=dims}", _product_first,
        why="rows of the product are shorter, or it is made of fewer"),
        "multiply before rows are read instead of behind it"),
)
