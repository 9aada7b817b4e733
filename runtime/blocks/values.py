"""The values of a group in one block, and which of them share a buffer.

A value that is computed inside a group has a buffer of one block: the place of a result, where it
is one or dies where one is computed from it, or else scratch memory. Scratch is shared by values
of one shape and dtype that are not alive at the same time.
"""
from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ...ir.kernels.row_sums import has_products
from ...ir.support.named_tuple import NamedTuple
from ..calls.recording import CALL, REDUCE, REPEAT, RESHAPE, VIEWS, WHERE

Shape = tuple[int, ...]


class Item(NamedTuple):
    """A step of the group. operands: numbers of values, or constants wrapped by the recording.

    call: which call of the group it is part of.
    """
    kind: str
    function: Any
    operands: tuple[Any, ...]
    result: int
    axes: tuple[int, ...]           # of a reduction, counted from behind
    call: int


new_item: Callable[[tuple], Item] = functools.partial(tuple.__new__, Item)
"""An item of its fields, in a third of the time."""


def with_clips(items: list[Item], values: Sequence[Value], kept: Collection[int]) -> list[Item]:
    """The items, one in place of two where numbers are cut to a range that scalars give.

    `minimum(high, maximum(low, x))` is `clip(x, low, high)` to the bit, with the bounds first as
    here. kept: values that are read elsewhere.
    """
    lows = {item.result: i for i, item in enumerate(items)
            if item.function is np.maximum and item.kind == CALL
            and values[item.result].dtype.char in "fd" and _is_bound(item.operands[0], values)
            and not _is_bound(item.operands[1], values)}
    if not lows:
        return items
    reads = Counter([v for item in items for v in item.operands if type(v) is int])
    gone = set()
    out = list(items)
    for j, item in enumerate(items):
        v = item.operands[-1]
        if (item.function is np.minimum and item.kind == CALL and type(v) is int and v in lows
                and reads[v] == 1 and v not in kept and _is_bound(item.operands[0], values)):
            low, x = items[lows[v]].operands
            out[j] = item._replace(function=np.clip, operands=(x, low, item.operands[0]))
            gone.add(lows[v])
    return [item for i, item in enumerate(out) if i not in gone]


def with_products(items: list[Item], values: Sequence[Value], kept: Collection[int], count: int
                  ) -> list[Item]:
    """The items, one in place of two where products are summed along rows: `vecdot` of the rows.

    kept: values that are read elsewhere. count: of operands.
    """
    products = {item.result: item for item in items if item.kind == CALL
                and item.function in _PRODUCTS and all([type(v) is int for v in item.operands])}
    sums = [item for item in items if item.kind == REDUCE and item.function is np.add
            and item.axes == (-1,) and item.operands[0] in products]
    if not sums:
        return items
    reads = Counter([v for item in items for v in item.operands if type(v) is int])
    full = _filled(items, values, count)
    gone: dict[int, Item] = {}
    for item in sums:
        v = item.operands[0]
        x, factors = values[v], products[v].operands
        if reads[v] == 1 and v not in kept and x.rows is not None and has_products(
                x.rest[-1:], x.dtype) and all([f in full and values[f].shape == x.shape
                                               and values[f].dtype == x.dtype for f in factors]):
            gone[v] = item._replace(function=np.vecdot, operands=(factors * 2)[:2])
    return [gone.get(item.operands[0], item) if item.kind == REDUCE else item for item in items
            if item.result not in gone]


_PRODUCTS = frozenset({np.multiply, np.square})


def _filled(items: Sequence[Item], values: Sequence[Value], count: int) -> set[int]:
    """The values of which all elements are there, none for several."""
    full = {v for v in range(count) if values[v] is not None and values[v].rows is not None}
    for item in items:
        shape = values[item.result].shape
        if item.kind == REDUCE or item.kind != REPEAT and any(
                [type(v) is int and v in full and (item.kind == RESHAPE or values[v].shape == shape)
                 for v in item.operands]):
            full.add(item.result)
    return full


def _is_bound(operand: Any, values: Sequence[Value]) -> bool:
    """Is it one number for all elements?"""
    return type(operand) is not int or not values[operand].shape


class Value:
    """A value of the group. shape: as declared; rest: of a row; actual: of a row where it is not
    repeated yet. root: the value whose buffer it is a view of.
    """

    __slots__ = ("actual", "buffer", "dtype", "last", "rest", "root", "rows", "shape")

    def __init__(self, shape: Shape, dtype: np.dtype, rows: int) -> None:
        self.shape = shape
        self.dtype = dtype
        count, place = 1, 0
        for n in shape:
            if count == rows:
                break
            count *= n
            place += 1
        self.rows = shape[:place] if count == rows else None
        self.rest = self.actual = shape[place:] if count == rows else shape
        self.root: Value = self
        self.last = -1
        self.buffer: Any = None

    @property
    def key(self) -> tuple[Shape, np.dtype]:
        return self.actual, self.dtype


def mask_for(values: list[Value], item: Item, i: int) -> int | None:
    """A value for the mask of a selection; its number, None where there are no such integers."""
    out = values[item.result]
    if out.dtype.itemsize not in (1, 2, 4, 8):
        return None
    mask = Value(out.shape, np.dtype(f"i{out.dtype.itemsize}"), 0)
    mask.rows, mask.rest, mask.actual, mask.last = out.rows, out.rest, out.actual, i
    values.append(mask)
    return len(values) - 1


def assign_buffers(values: list[Value], items: Sequence[Item], own: dict[int, int], count: int,
             masks: dict[int, int | None]) -> list[tuple[Shape, np.dtype]]:
    """Give each computed value a buffer: ("out", j) or ("scratch", k); the scratch buffers.

    A value that dies where a result is computed from it lives in the result's memory already.
    """
    for o, j in own.items():
        values[o].buffer = ("out", j)
    for i in range(len(items) - 1, -1, -1):
        item = items[i]
        out = values[item.result]
        if out.buffer is not None and out.buffer[0] == "out":
            x = _replaced(values, item, i, count)
            if x is not None and x.buffer is None:
                x.buffer = out.buffer
    scratch: list[tuple[Shape, np.dtype]] = []
    free: dict[Any, list[int]] = {}
    ends: dict[int, list[Value]] = {}

    def give(x: Value, i: int) -> None:
        spare = free.get(x.key)
        if spare:
            x.buffer = ("scratch", spare.pop())
        else:
            x.buffer = ("scratch", len(scratch))
            scratch.append(x.key)
        ends.setdefault(max(x.last, i), []).append(x)

    for i, item in enumerate(items):
        out = values[item.result]
        mask = masks.get(i)
        if mask is not None:
            give(values[mask], i)
        if item.kind not in VIEWS and out.buffer is None:
            x = _replaced(values, item, i, count)
            if x is not None and x.buffer[0] == "scratch":
                out.buffer = x.buffer
                ends[i] = [e for e in ends.get(i, ()) if e is not x]
                ends.setdefault(max(out.last, i), []).append(out)
            else:
                give(out, i)
        for x in ends.get(i, ()):
            if x.buffer[0] == "scratch":
                free.setdefault(scratch[x.buffer[1]], []).append(x.buffer[1])
    return scratch


def _replaced(values: list[Value], item: Item, i: int, count: int) -> Value | None:
    """The operand that dies at step i and whose buffer the result may take, if there is one."""
    out = values[item.result]
    if item.kind == CALL:
        candidates = item.operands
    elif item.kind == WHERE:
        which, x, y = item.operands             # see `_select`
        others = {values[v].root for v in (which, y) if type(v) is int}
        candidates = () if type(x) is not int or values[x] in others else (x,)
    else:
        return None
    for v in candidates:
        if type(v) is int and v >= count:
            x = values[v]
            if x.root is x and x.last == i and x.key == out.key:
                return x
    return None
