"""The steps of a group: functions of the arrays of all values in a block, and its rows' shape."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.kernels.merged_repeats import joins_last, merged
from ...ir.kernels.row_sums import row_adder
from ..calls.recording import CAST, REDUCE, REPEAT, RESHAPE, WHERE, constant, reading_once
from ..calls.short_rows import by_columns, has_short_rows
from .values import Item, Value

Shape = tuple[int, ...]
Values = list[Any]
Act = Callable[[Values, Shape], None]


def act(item: Item, values: list[Value], mask: int | None) -> Act:
    """The function that does a step: of the arrays of all values, and the shape of the rows."""
    o = item.result
    refs = item.operands
    if item.kind == REPEAT:
        (a,) = refs

        def repeat(at: Values, rows: Shape) -> None:
            at[o] = at[a]
        return repeat
    if item.kind == RESHAPE:
        (a,) = refs
        rest, full = values[o].rest, _filled(values[a])
        joins = full is not None and joins_last(full, rest)

        def reshape(at: Values, rows: Shape) -> None:
            x = at[a] if full is None else np.broadcast_to(at[a], rows + full)
            at[o] = merged(x, rows + rest) if joins else x.reshape(rows + rest)
        return reshape
    if item.kind == REDUCE and len(refs) == 2:
        a, b = refs

        def products(at: Values, rows: Shape) -> None:
            np.vecdot(at[a], at[b], at[o])
        return products
    if item.kind == REDUCE:
        (a,) = refs
        function, axes, full, dtype = (item.function.reduce, item.axes, _filled(values[a]),
                                       values[o].dtype)
        x = values[a]
        if axes == (-1,) and x.rows is not None and has_short_rows(
                item.function, math.prod(x.rows), x.rest, dtype):
            columns = by_columns(item.function)

            def extreme(at: Values, rows: Shape) -> None:
                columns(at[a] if full is None else np.broadcast_to(at[a], rows + full), at[o])
            return extreme
        rank = len(axes)
        add = row_adder(x.rest[len(x.rest) - rank:], dtype) if item.function is np.add and (
            axes == tuple(range(-rank, 0))) else None
        if add is not None and full is None:
            adder = add

            def total(at: Values, rows: Shape) -> None:
                adder(at[a], at[o])
            return total

        def reduce(at: Values, rows: Shape) -> None:
            x = at[a] if full is None else np.broadcast_to(at[a], rows + full)
            function(x, axes, dtype, at[o])
        return reduce
    if item.kind == CAST:
        (a,) = refs

        def cast(at: Values, rows: Shape) -> None:
            np.copyto(at[o], at[a], casting="unsafe")
        return cast
    if item.kind == WHERE:
        return _select(o, refs, values[o].dtype, mask)
    return _ufunc(o, *reading_once(item.function, refs, values[o].dtype))


def _filled(x: Value) -> Shape | None:
    """The shape of a row to repeat a value to before its elements are counted."""
    return None if x.actual == x.rest else x.rest


def _ufunc(o: int, function: Any, refs: Sequence[Any]) -> Act:
    if len(refs) == 1:
        (a,) = refs

        def unary(at: Values, rows: Shape) -> None:
            function(at[a], out=at[o])
        return unary
    if len(refs) == 2:
        a, b = refs
        if type(a) is int and type(b) is int:
            def binary(at: Values, rows: Shape) -> None:
                function(at[a], at[b], out=at[o])
            return binary
        if type(a) is int:
            y = constant(b)

            def left(at: Values, rows: Shape) -> None:
                function(at[a], y, out=at[o])
            return left
        if type(b) is int:
            x = constant(a)

            def right(at: Values, rows: Shape) -> None:
                function(x, at[b], out=at[o])
            return right

    def nary(at: Values, rows: Shape) -> None:
        function(*(at[r] if type(r) is int else constant(r) for r in refs), out=at[o])
    return nary


def _select(o: int, refs: tuple[Any, ...], dtype: np.dtype, mask: int | None) -> Act:
    """`where` by bits: y ^ ((x ^ y) & mask), which has no branches to mispredict."""
    known = [None if type(r) is int else constant(r) for r in refs]
    if mask is None:
        def plain(at: Values, rows: Shape) -> None:
            which, x, y = (at[r] if k is None else k for r, k in zip(refs, known, strict=True))
            np.copyto(at[o], np.where(which, x, y))
        return plain
    m: int = mask
    bits = np.dtype(f"i{dtype.itemsize}")
    c, a, b = refs
    which, one, other = known

    def select(at: Values, rows: Shape) -> None:
        x = at[a] if one is None else one
        y = at[b] if other is None else other
        decides = at[c] if which is None else which
        out = at[o]
        if 0 in decides.strides or decides.size == 1:   # the same along a dimension: decide once
            decides = decides[tuple([slice(0, 1) if s == 0 else slice(None)
                                     for s in decides.strides])]
            if _by_rows(decides, x, y, out):
                return
            chosen = np.empty(decides.shape, bits)
        else:
            chosen = at[m]
        x, y, out, decides = x.view(bits), y.view(bits), out.view(bits), decides.view(np.int8)
        if _is_zero(x):
            np.subtract(decides, 1, out=chosen)
            np.bitwise_and(y, chosen, out=out)
            return
        np.negative(decides, out=chosen)
        if _is_zero(y):
            np.bitwise_and(x, chosen, out=out)
            return
        np.bitwise_xor(x, y, out=out)
        np.bitwise_and(out, chosen, out=out)
        np.bitwise_xor(out, y, out=out)
    return select


def _by_rows(decides: Any, x: Any, y: Any, out: Any) -> bool:
    """Choose between x and y where one of them is rare, and chosen for all of a row."""
    count = np.count_nonzero(decides)
    common, rare = (x, y) if 2 * count > decides.size else (y, x)
    few = decides if rare is x else ~decides
    count = min(count, decides.size - count)
    dims = [d for d, n in enumerate(decides.shape) if n != 1]
    if count and (8 * count > decides.size or len(dims) > 1):
        return False
    if not count:
        np.copyto(out, common)
        return True
    (d,) = dims
    rows = (slice(None),) * d + (np.flatnonzero(few),)
    taken = np.broadcast_to(rare, out.shape)[rows]      # before it is written over
    np.copyto(out, common)
    out[rows] = taken
    return True


def _is_zero(x: Any) -> bool:
    """Is it one number for all elements, all of whose bits are 0?"""
    return not any(x.strides) and not x[(0,) * x.ndim]


def copying(source: int, target: int) -> Act:
    def copy(at: Values, rows: Shape) -> None:
        np.copyto(at[target], at[source])
    return copy
