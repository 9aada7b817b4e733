"""Rows that are read by number, and products with one-hot rows, each instead of the other.

    NAME                  instead of                              written
    rows                  a product with one-hot rows             reading the rows that they name
    rows of a gradient    the derivative of such a product        adding to the rows that they name
    rows of blocks        reading rows of a gathered table        each device's own of them, psum
    row of blocks         reading one row that all devices read   that of the device that has it

Equal where the other operand is finite: what names no row is a row of zeros, or is added to none.
What is read of blocks is the product with the block's part of the one-hot rows, without the zeros.
"""
from __future__ import annotations

import ast
import re

import numpy as np

from ....ir.op import OPS
from ....ir.ops.gather_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from ....ir.program import Atom, Literal
from ....ir.rewriting.rewrite import Match, Rewrite
from ....ir.types import array_type
from .blocks import Blocks
from .lines.expressions import GatheredIn, axes_text, expression, gathered_in
from .lines.statements import as_operand, call_of, is_kept
from .reduced_blocks import reduced_of_blocks
from .rewrites import CodeChange, fit
from .varying_axes import by_device


def _origin(m: Match, atom: Atom) -> tuple[Atom, tuple[int, ...]]:
    """What a value repeats, and the dimension of the value for each dimension of that."""
    dims = tuple(range(atom.aval.ndim))
    while (made := m.maker(atom)) is not None and made.op is OPS["broadcast_in_dim"]:
        dims = tuple([dims[d] for d in made.params["broadcast_dimensions"]])
        atom = made.invars[0]
    return atom, dims


def _named(m: Match, onehot: Atom) -> Atom | None:
    """The numbers of the rows that one-hot vectors along the last dimension of a value name; None
    if it has none.
    """
    cast = m.maker(onehot)
    match = m.maker(cast.invars[0]) if cast is not None and (
        cast.op is OPS["convert_element_type"]) else None
    if match is None or match.op is not OPS["eq"]:
        return None
    *shape, count = onehot.aval.shape
    left, right = [_origin(m, a) for a in match.invars]
    for (index, of), (numbers, along) in ((left, right), (right, left)):
        made = m.maker(numbers)
        if (made is not None and made.op is OPS["iota"]
                and along[made.params["dimension"]] == len(shape)
                and numbers.aval.shape[made.params["dimension"]] == count
                and of == tuple(range(len(shape))) and index.aval.shape == tuple(shape)
                and index.aval.dtype.kind in "iu"):
            return index
    return None


def _vectors(m: Match, index: Atom) -> Atom:
    """The numbers of rows as a gather, or a scatter, reads them."""
    shape = index.aval.shape
    return m.emit(OPS["broadcast_in_dim"], index, shape=(*shape, 1),
                  broadcast_dimensions=tuple(range(len(shape))), sharding=None)


def _rows(m: Match) -> Atom | None:
    index, table = _named(m, m.left), m.right.aval
    last = m.left.aval.ndim - 1
    if index is None or m.dims != (((last,), (0,)), ((), ())):
        return None
    inner = table.shape[1:]
    found = m.emit(OPS["gather"], m.right, _vectors(m, index), dimension_numbers=(
        GatherDimensionNumbers(tuple(range(last, last + len(inner))), (0,), (0,), (), ())),
        slice_sizes=(1, *inner), indices_are_sorted=False, unique_indices=False,
        mode=GatherScatterMode.FILL_OR_DROP, fill_value=0)
    return fit(m, found)


def _rows_code(m: Match) -> str:
    """That by what the user's expression, and the call in it that makes the one-hot rows, read."""
    at, made = m.eqn.location, m.maker(m.left)
    call = None if made is None else call_of(made.location.text(), "one_hot")
    if made is None or call is None or not call.args or at.transform not in ("", "jvp"):
        return ""
    index = ast.get_source_segment(made.location.text(), call.args[0]) or ""
    table = _second_operand(at.text())
    if not all(re.fullmatch(r"[\w.\[\]'\"]+", name) for name in (index, table)) or not is_kept(
            index, made.location, at):
        return ""
    return f"{table}.at[{index}].get(mode=\"fill\", fill_value=0, wrap_negative_indices=False)"


def _second_operand(text: str) -> str:
    """The second factor of what is written as a product of two; "" if it is not."""
    try:
        found = ast.parse(text, mode="eval").body
    except SyntaxError:
        return ""
    if isinstance(found, ast.BinOp) and isinstance(found.op, ast.MatMult):
        return ast.get_source_segment(text, found.right) or ""
    call = call_of(text, "matmul", "dot")
    return ast.get_source_segment(text, call.args[1]) or "" if call is not None and (
        len(call.args) == 2) else ""


def _rows_of_gradient(m: Match) -> Atom | None:
    """The gradient of a product with one-hot rows: rows added to zeros at the places they name."""
    for onehot, other in ((m.left, m.right), (m.right, m.left)):
        index, last = _named(m, onehot), onehot.aval.ndim - 1
        if index is None or m.dims != ((tuple(range(last)),) * 2, ((), ())):
            continue
        inner, dtype = other.aval.shape[last:], other.aval.dtype
        zeros = m.full(Literal(np.zeros((), dtype)[()], array_type((), dtype)),
                       (onehot.aval.shape[-1], *inner))
        found = m.emit(OPS["scatter-add"], zeros, _vectors(m, index), other, dimension_numbers=(
            ScatterDimensionNumbers(tuple(range(last, last + len(inner))), (0,), (0,))),
            indices_are_sorted=False, unique_indices=False, mode=GatherScatterMode.FILL_OR_DROP)
        if onehot is m.right:
            found = m.emit(OPS["transpose"], found, permutation=(*range(1, 1 + len(inner)), 0))
        return fit(m, found)
    return None


def _rows_of_blocks_code(m: Match) -> str:
    """The line, for places that are not negative."""
    table = gathered_in(m, m.table)
    if table is None or not table.gather.params["tiled"]:
        return ""
    (d, *_), text = m.eqn.params["dimension_numbers"].start_index_map, expression(m.eqn)
    axes, own = axes_text(table.gather.axes), table.gather.invars[0].aval.shape[d]
    call = call_of(text, "take_along_axis")
    if call is not None:
        return _taken_of_blocks(text, call, table, d, own)
    place = re.fullmatch(rf"{re.escape(table.whole)}\[(\w+)\]", text)
    if not place or d:
        return ""
    at = f"{place[1]} - lax.axis_index({axes}) * {own}"
    return (f"lax.psum({as_operand(table.part)}.at[{at}].get("
            f"mode=\"fill\", fill_value=0, wrap_negative_indices=False), {axes})")


def _taken_of_blocks(text: str, call: ast.Call, table: GatheredIn, d: int, own: int) -> str:
    """A call of `take_along_axis` likewise."""
    if [k.arg for k in call.keywords] not in ([], ["axis"]) or len(call.args) < 2:
        return ""
    whole, index = [ast.get_source_segment(text, a) or "" for a in call.args[:2]]
    if whole != table.whole or d != table.gather.params["all_gather_dimension"]:
        return ""
    axes, at = axes_text(table.gather.axes), as_operand(index)
    first, second = call.args[:2]
    taken = (f"{text[:first.col_offset]}{table.part}{text[first.end_col_offset:second.col_offset]}"
             f"{at} % {own}{text[second.end_col_offset:]}")
    return f"lax.psum(jnp.where({at} // {own} == lax.axis_index({axes}), {taken}, 0), {axes})"


def _row_of_blocks(m: Match) -> Atom | None:
    """The row at an index that is not known for each device, of the device that has it."""
    blocks = Blocks(m)
    found = blocks.of(m.value)
    if found is None or blocks.gather is None or m.eqn.params["slice_sizes"][found[1]] != 1 or (
            by_device(m, m.eqn.invars[1 + found[1]], blocks.count, blocks.gather.axes)
            is not None):
        return None
    return reduced_of_blocks(m)


def _row_of_blocks_code(m: Match) -> str:
    """The line, for an index that is not negative."""
    whole, text = gathered_in(m, m.value), expression(m.eqn)
    if whole is None or not whole.gather.params["tiled"]:
        return ""
    d, axes = whole.gather.params["all_gather_dimension"], axes_text(whole.gather.axes)
    own = whole.gather.invars[0].aval.shape[d]
    place = re.fullmatch(rf"{re.escape(whole.whole)}\[(\w+)((?:, [\w:]+)*)\]", text)
    if not place or d:
        return ""
    at, others = place.groups()
    return (f"lax.psum(jnp.where({at} // {own} == lax.axis_index({axes}), "
            f"{as_operand(whole.part)}[{at} % {own}{others}], 0), {axes})")


_WORDS = "look rows up instead of multiplying with one-hot rows"
ONE_HOT: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "rows", "out = dot_general left right {dimension_numbers=dims}", _rows,
        why="rows are read, and no product with zeros is exchanged"), _WORDS, _rows_code),
    CodeChange(Rewrite(
        "rows of a gradient", "out = dot_general left right {dimension_numbers=dims}",
        _rows_of_gradient, why="what is added to rows is no product with zeros"),
        _WORDS),
    CodeChange(Rewrite(
        "rows of blocks", "out = gather table at", reduced_of_blocks,
        why="only the rows that are read are exchanged"),
        "look rows up in each device's own block, and sum these, instead of gathering all",
        _rows_of_blocks_code),
    CodeChange(Rewrite(
        "row of blocks", "out = dynamic_slice value *starts", _row_of_blocks,
        why="only the row that is read is exchanged"),
        "read the row on the device that has it, and sum over devices, instead of gathering all",
        _row_of_blocks_code),
)
