"""Evaluating a group of calls block by block: what passes between them stays in the cache.

A block is so many rows that a value of it has about `BLOCK` bytes. Values inside a group live
in buffers of one block, written again for every block and shared by values that are not alive at
the same time; results are written where they belong. Blocks are independent, so large groups are
evaluated by one thread per core (numpy lets other threads run during a call).

The steps are the numpy calls of the ops' own evaluators (runtime/recording.py) on the same
numbers, hence with the same results to the last bit. (Only the sum of an operand that does not lie
in row-major order may be added up in another order.)
"""
from __future__ import annotations

import functools
import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..ir.pool import empty
from ..ir.program import Equation
from .cores import in_parallel, share_count
from .recording import CALL, CAST, REDUCE, REPEAT, RESHAPE, VIEWS, WHERE, Recording, constant

Shape = tuple[int, ...]
Values = list[Any]
Act = Callable[[Values, Shape], None]
BLOCK = 1 << 18                 # bytes of the largest value in a block


_BUILDING = threading.Lock()


class Member(NamedTuple):
    """A call of a group: what it does, and the slots that it reads and writes."""
    recording: Recording
    inputs: tuple[int, ...]
    output: int
    eqn: Equation | None


class _Item(NamedTuple):
    """A step of the group. operands: numbers of values, or constants wrapped by the recording."""
    kind: str
    function: Any
    operands: tuple[Any, ...]
    result: int
    axes: tuple[int, ...]           # of a reduction, counted from behind
    eqn: Equation | None


class _Value:
    """A value of the group. shape: as declared; rest: of a row; actual: of a row where it is not
    repeated yet. root: the value whose buffer it is a view of.
    """

    __slots__ = ("actual", "buffer", "dtype", "last", "rest", "root", "rows", "shape")

    def __init__(self, shape: Shape, dtype: np.dtype, rows: int) -> None:
        self.shape = shape
        self.dtype = dtype
        count, place = 1, 0
        while count != rows and place < len(shape):
            count *= shape[place]
            place += 1
        self.rows = shape[:place] if count == rows else None
        self.rest = self.actual = shape[place:] if count == rows else shape
        self.root: _Value = self
        self.last = -1
        self.buffer: Any = None

    @property
    def key(self) -> tuple[Shape, np.dtype]:
        return self.actual, self.dtype


class Blocked:
    """The function of a group's operands that gives its results."""

    __slots__ = ("_built", "_frames", "_members", "_operands", "_results", "_rows", "acts", "count",
                 "in_place", "in_scratch", "outputs", "scratch", "stretch", "stretched", "values")

    def __init__(self, members: Sequence[Member], operands: Sequence[int], results: Sequence[int],
                 rows: int) -> None:
        self._members = members
        self._operands = operands
        self._results = results
        self._rows = rows
        self._built = False
        self._frames: dict[Any, _Frame] = {}

    @property
    def equations(self) -> tuple[Equation, ...]:
        """The equations that the group computes."""
        return tuple(dict.fromkeys(m.eqn for m in self._members if m.eqn is not None))

    # -- building ------------------------------------------------------------------------------
    def _build(self) -> None:
        """Number the values, give them buffers, and make the functions of the steps."""
        values, items, outputs = self._numbered()
        count = len(self._operands)
        self.values = values
        self.stretch: list[Shape | None] = [None] * count
        for item in items:
            self._infer(values, item, count)
        self.stretched = any(shape is not None for shape in self.stretch)
        for i, item in enumerate(items):
            for v in item.operands:
                if type(v) is int:
                    values[v].root.last = i
        own: dict[int, int] = {}
        for j, o in enumerate(outputs):
            v = values[o]
            if o >= count and v.root is v and v.actual == v.rest:
                own.setdefault(o, j)
        for o in outputs:
            values[o].root.last = len(items)
        masks = {i: _mask(values, item, i) for i, item in enumerate(items) if item.kind == WHERE}
        self.scratch = _buffers(values, items, own, count, masks)
        self.acts = [(_act(item, values, masks.get(i)), item.eqn) for i, item in enumerate(items)]
        for j, o in enumerate(outputs):
            if own.get(o) != j:             # given by a view, or one row for all
                self.acts.append((_copying(o, len(values) + j), None))
        self.outputs = outputs
        self.count = len(values)
        buffers = [(i, *v.buffer) for i, v in enumerate(values) if v.buffer is not None]
        self.in_place = [(i, j) for i, kind, j in buffers if kind == "out"]
        self.in_scratch = [(i, k) for i, kind, k in buffers if kind == "scratch"]
        self._built = True

    def _numbered(self) -> tuple[list[_Value], list[_Item], list[int]]:
        at: dict[int, int] = {}
        values: list[_Value] = []
        items: list[_Item] = []
        for m in self._members:
            for s in m.inputs:
                if s in self._operands and s not in at:
                    at[s] = self._operands.index(s)
        shapes: dict[int, tuple[Shape, np.dtype]] = {}
        for m in self._members:
            for s, value in zip(m.inputs, m.recording.values, strict=False):
                if s in at:
                    shapes[at[s]] = value
        for i in range(len(self._operands)):
            values.append(_Value(*shapes[i], self._rows))
        for m in self._members:
            local: list[int] = [at[s] for s in m.inputs]
            for shape, dtype in m.recording.values[m.recording.operands:]:
                local.append(len(values))
                values.append(_Value(shape, dtype, self._rows))
            for step in m.recording.steps:
                source = [local[v] if type(v) is int else v for v in step.operands]
                rank = len(m.recording.values[step.operands[0]][0]) if step.axes else 0
                items.append(_Item(step.kind, step.function, tuple(source), local[step.result],
                                   tuple(a - rank for a in step.axes), m.eqn))
            at[m.output] = local[m.recording.result]
        return values, items, [at[s] for s in self._results]

    def _infer(self, values: list[_Value], item: _Item, count: int) -> None:
        """The part of a row that is really computed, and whose buffer it is."""
        out = values[item.result]
        sources = [values[v] for v in item.operands if type(v) is int]
        if item.kind == REPEAT:
            out.actual, out.root = sources[0].actual, sources[0].root
        elif item.kind == RESHAPE:
            out.root = sources[0].root
        elif item.kind != REDUCE:
            for v, x in zip((v for v in item.operands if type(v) is int), sources, strict=True):
                if x.rows is None and x.shape:              # repeated along rows
                    assert v < count and out.rows is not None
                    place = len(out.rows)
                    x.rows = out.rows
                    x.rest = x.actual = x.shape[place:]
                    self.stretch[v] = (*out.rows, *x.rest)
            out.actual = np.broadcast_shapes(*(x.actual for x in sources if x.shape))

    # -- running -------------------------------------------------------------------------------
    def __call__(self, *arrays: Any) -> list[Any]:
        if not self._built:
            with _BUILDING:
                if not self._built:
                    self._build()
        given: Sequence[Any] = arrays
        if self.stretched:
            given = [x if shape is None else np.broadcast_to(x, shape)
                     for x, shape in zip(arrays, self.stretch, strict=True)]
        key = tuple([x.strides for x in given])
        frame = self._frames.get(key)
        if frame is None:
            if len(self._frames) > 16:
                self._frames.clear()
            frame = self._frames[key] = _Frame(self, given)
        return frame.run(given)

    def follow(self, at: Values, rows: Shape) -> None:
        """Do all steps on one block. at: by value the array of the block, then of the results."""
        eqn: Equation | None = None
        try:
            for act, eqn in self.acts:      # noqa: B007
                act(at, rows)
        except Exception as error:
            if eqn is not None:
                error.add_note(f"while running `{eqn.op.name}` of {eqn.location}")
            raise


def _mask(values: list[_Value], item: _Item, i: int) -> int | None:
    """A value for the mask of a selection; its number, None where there are no such integers."""
    out = values[item.result]
    if out.dtype.itemsize not in (1, 2, 4, 8):
        return None
    mask = _Value(out.shape, np.dtype(f"i{out.dtype.itemsize}"), 0)
    mask.rows, mask.rest, mask.actual, mask.last = out.rows, out.rest, out.actual, i
    values.append(mask)
    return len(values) - 1


def _buffers(values: list[_Value], items: Sequence[_Item], own: dict[int, int], count: int,
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
    ends: dict[int, list[_Value]] = {}

    def give(x: _Value, i: int) -> None:
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


def _replaced(values: list[_Value], item: _Item, i: int, count: int) -> _Value | None:
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


# -- steps -----------------------------------------------------------------------------------------

def _act(item: _Item, values: list[_Value], mask: int | None) -> Act:
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

        def reshape(at: Values, rows: Shape) -> None:
            x = at[a] if full is None else np.broadcast_to(at[a], rows + full)
            at[o] = x.reshape(rows + rest)
        return reshape
    if item.kind == REDUCE:
        (a,) = refs
        function, axes, full, dtype = (item.function.reduce, item.axes, _filled(values[a]),
                                       values[o].dtype)

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
    return _ufunc(o, item.function, refs)


def _filled(x: _Value) -> Shape | None:
    """The shape of a row to repeat a value to before its elements are counted."""
    return None if x.actual == x.rest else x.rest


def _ufunc(o: int, function: Any, refs: tuple[Any, ...]) -> Act:
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
        x = (at[a] if one is None else one).view(bits)
        y = (at[b] if other is None else other).view(bits)
        out, chosen = at[o].view(bits), at[m]
        np.copyto(chosen, at[c] if which is None else which)
        np.negative(chosen, out=chosen)
        np.bitwise_xor(x, y, out=out)
        np.bitwise_and(out, chosen, out=out)
        np.bitwise_xor(out, y, out=out)
    return select


def _copying(source: int, target: int) -> Act:
    def copy(at: Values, rows: Shape) -> None:
        np.copyto(at[target], at[source])
    return copy


# -- frames ----------------------------------------------------------------------------------------

class _Frame:
    """A group for operands with given strides: how its rows are cut into blocks.

    dims: the sizes into which the rows are told apart, so that every operand has one stride along
    each. cut: the dimension of these that is sliced; `size` along it in a block.
    """

    __slots__ = ("blocks", "dims", "fine", "group", "inner", "operands", "order", "results",
                 "shares", "size")

    def __init__(self, group: Blocked, given: Sequence[Any]) -> None:
        self.group = group
        values = group.values
        rows = [x.rows for x in values if x.rows is not None]
        fine = _refined(rows)
        views = [_with_rows(x, v, fine) for x, v in zip(given, values, strict=False)]
        strides = [v.strides[:len(fine)] for v in views if v is not None]
        self.order = None
        if all(not x.rest for x in values) and all(_plain(x) == fine for x in rows):
            self.order = _order(fine, strides)
        self.fine = fine
        if self.order is not None:
            fine = tuple(fine[d] for d in self.order)
            strides = [tuple(s[d] for d in self.order) for s in strides]
        self.dims = dims = _merged(fine, strides)
        self.shares = share_count(math.prod(dims) * max(math.prod(x.actual) for x in values))
        per = max(1, BLOCK // max(math.prod(x.actual) * x.dtype.itemsize for x in values))
        cut = len(dims) - 1
        below = 1
        while cut > 0 and below * dims[cut] < per:
            below *= dims[cut]
            cut -= 1
        self.size = size = max(1, min(dims[cut], per // below))
        self.inner = dims[cut + 1:]
        self.blocks = [(*outer, slice(i, min(i + size, dims[cut])))
                       for outer in itertools.product(*(range(n) for n in dims[:cut]))
                       for i in range(0, dims[cut], size)]

        self.operands = [(i, None if v.rows is None else dims + v.rest, v.rows is None)
                         for i, v in enumerate(values[:len(given)])]
        self.results = [(values[o].shape, dims + values[o].rest, values[o].dtype)
                        for o in group.outputs]

    def run(self, given: Sequence[Any]) -> list[Any]:
        order = self.order
        at: Values = list(given)
        for i, shape, scalar in self.operands:
            if scalar:
                continue
            x = at[i]
            if order is not None:
                x = x.reshape(self.fine).transpose(order)
            at[i] = x if x.shape == shape else x.reshape(shape)
        results: list[Any] = []
        wholes: list[Any] = []
        for shape, rows, dtype in self.results:
            if order is not None:
                x = empty(tuple(self.fine[d] for d in order), dtype)
                results.append(x.transpose(_inverse(order)).reshape(shape))
            else:
                x = empty(shape, dtype)
                results.append(x)
            wholes.append(x if x.shape == rows else x.reshape(rows))
        blocks, shares = self.blocks, min(self.shares, len(self.blocks))
        if len(blocks) == 1:
            self._single(at, wholes)
        elif shares == 1:
            self._several(at, wholes, blocks)
        else:
            bounds = [len(blocks) * i // shares for i in range(shares + 1)]
            in_parallel([functools.partial(self._several, at, wholes, blocks[a:b])
                         for a, b in itertools.pairwise(bounds)])
        return results

    def _memory(self) -> list[Any]:
        rows = (self.size, *self.inner)
        return [empty(rows + rest, dtype) for rest, dtype in self.group.scratch]

    def _single(self, given: Values, wholes: list[Any]) -> None:
        """All rows at once."""
        group = self.group
        at: Values = [*given, *[None] * (group.count - len(given)), *wholes]
        for i, j in group.in_place:
            at[i] = wholes[j]
        memory = self._memory()
        for i, k in group.in_scratch:
            at[i] = memory[k]
        group.follow(at, self.dims)

    def _several(self, given: Values, wholes: list[Any], blocks: Sequence[tuple]) -> None:
        """Some of the blocks, one after the other."""
        group, inner, count = self.group, self.inner, self.group.count
        in_place, in_scratch, follow = group.in_place, group.in_scratch, group.follow
        at: Values = [*given, *[None] * (count - len(given)), *wholes]
        operands = [(i, given[i]) for i, _, scalar in self.operands if not scalar]
        memory = self._memory()
        rows: Shape = ()
        for block in blocks:
            last = block[-1]
            size = last.stop - last.start
            if not rows or size != rows[0]:
                rows = (size, *inner)
                for i, k in in_scratch:
                    at[i] = memory[k][:size]
            for i, x in operands:
                at[i] = x[block]
            outs = [w[block] for w in wholes]
            at[count:] = outs
            for i, j in in_place:
                at[i] = outs[j]
            follow(at, rows)


def _with_rows(x: Any, v: _Value, fine: Shape) -> Any:
    return None if v.rows is None else x.reshape(fine + v.rest)


def _refined(shapes: Sequence[Shape]) -> Shape:
    """The coarsest sizes of which those of every shape are products, all having one product."""
    ends = {1}
    for shape in shapes:
        count = 1
        for n in shape:
            count *= n
            ends.add(count)
    sizes = sorted(ends)
    return tuple(b // a for a, b in itertools.pairwise(sizes)) or (1,)


def _merged(dims: Shape, strides: Sequence[tuple[int, ...]]) -> Shape:
    """The sizes with neighbours made one where all strides allow it."""
    out = [dims[0]]
    for d in range(1, len(dims)):
        if all(s[d - 1] == s[d] * dims[d] for s in strides):
            out[-1] *= dims[d]
        else:
            out.append(dims[d])
    return tuple(out)


def _plain(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1) or (1,)


def _order(dims: Shape, strides: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The order of dimensions in which the operands lie in memory; None if it is the given one."""
    full = [s for s in strides if 0 not in s]
    if not full:
        return None
    order = tuple(sorted(range(len(dims)), key=lambda d: -abs(full[0][d])))
    return None if order == tuple(range(len(dims))) else order


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in range(len(order)))
