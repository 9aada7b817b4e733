"""Rows that lie on one device are sent by it alone: to each other device the part that it needs.

`x[-1]` of rows over x, wanted in columns over x, becomes an all-to-all of blocks of which only one
is read, or a reduce-scatter of blocks of which all but one are zero. But if all rows lie in the
block of one device, the others have nothing to send. (Exchanges that the user wrote stay.)
"""
from __future__ import annotations

from typing import Any

from ...ir.ops.communication.exchange_rows import exchange_rows_p
from ...ir.ops.communication.row_exchange_plan import Piece, Wanted, plain
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Equation, Literal
from ...ir.reasons import ONE_SENDS
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites
from ..reasons import is_written, merged_reasons


def _sent(m: Match, rows: Atom, exchange: Equation, owner: int, split: int) -> Atom:
    """The rows of one device, scattered: each device gets its block along a dimension."""
    size, devices = rows.aval.shape[split], m.axis_size
    part = size // devices
    wanted = Wanted(part, 0, part, (Piece(0, size, 0, owner * size, 1),))
    return m.emit(exchange_rows_p, rows, like=exchange, axis_name=m.axis_name, axis_size=devices,
                  dimension=split, parts=(size,), wanted=plain((wanted,)),
                  reason=merged_reasons((exchange.reason, (ONE_SENDS(),))))


def _are_of_one_block(m: Match) -> Any:
    """Does one device have the rows that are read, and is the other dimension taken whole?"""
    d, split, exchange = m.concat_axis, m.split_axis, m.maker(m.exchanged)
    block, whole = m.x.aval.shape[d], m.exchanged.aval.shape[split]
    assert exchange is not None
    return (not is_written(exchange) and d != split
            and m.start[d] // block == (m.limit[d] - 1) // block
            and m.eqn.outvars[0].aval.shape[split] == whole)


def _sliced_first(m: Match) -> Atom:
    """The rows, cut out of the block of the device that has them, sent to each other device in
    part.
    """
    start, limit, d, split = list(m.start), list(m.limit), m.concat_axis, m.split_axis
    exchange, block = m.maker(m.exchanged), m.x.aval.shape
    assert exchange is not None
    owner, start[d] = divmod(start[d], block[d])
    limit[d] -= owner * block[d]
    limit[split] = block[split]
    rows = m.emit(slice_p, m.x, start_indices=tuple(start), limit_indices=tuple(limit),
                  strides=m.eqn.params["strides"])
    return _sent(m, rows if rows.aval.shape != block else m.x, exchange, owner, split)


def _is_of_one_device(m: Match) -> Any:
    """Are the summed values zero but on one device of those that the sum is over?"""
    number = m.constant_of(m.zeros)
    return (not is_written(m.eqn) and isinstance(m.owner, Literal)
            and number is not None and not number.val)


ROWS_OF_ONE = Rewrites(
    Rewrite("rows-of-exchanged", """
        exchanged = all_to_all x {axis_name, axis_size, concat_axis, split_axis, tiled=True}
        out = slice exchanged {start_indices=start, limit_indices=limit}
        """, _sliced_first, single_use=("exchanged",), where=_are_of_one_block,
            why="one device sends a part of a few rows, instead of each a part of its block"),
    Rewrite("sum-of-one-device", """
        index = axis_index {axis_name}
        mine = eq index owner
        kept = select_n mine zeros x
        out = reduce_scatter kept {axis_name, axis_size, scatter_dimension, tiled=True}
        """, lambda m: _sent(m, m.x, m.eqn, int(m.owner.val), m.scatter_dimension),
            where=_is_of_one_device, why="there is nothing to add to what one device has"))
