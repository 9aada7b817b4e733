"""Evaluating a group of calls block by block: what passes between them stays in the cache.

Values inside a group live in buffers of one block, written again for every block
(runtime/blocks/values.py); results are written where they belong. numpy lets other threads run
during a call, so that all cores take part (runtime/blocks/frames.py).

The steps are the numpy calls of the ops' own evaluators (runtime/calls/recording.py) on the same
numbers, hence with the same results to the last bit. (Only the sum of an operand that does not lie
in row-major order may be added up in another order, and products that are summed along rows are not
rounded before.)

Groups of the same calls, joined alike, have one *routine*, whatever equations they come from: the
leaves of an optimizer and the layers of a network are made ready once.
"""
from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.program import Equation
from ...ir.support.caches import module_table
from ..calls.call import Call
from ..calls.permuted import Moves
from ..calls.recording import CALL, REDUCE, REPEAT, RESHAPE, VIEWS, WHERE, Kernel
from .cores import CHEAP, DEAR
from .frames import Frame, Group
from .steps import Act, act, copying
from .values import (
    Item,
    Value,
    assign_buffers,
    mask_for,
    new_item,
    with_clips,
    with_products,
)

Shape = tuple[int, ...]
NOTHING: Mapping[int, Any] = {}
_BUILDING = threading.RLock()


class Blocked:
    """The function of a group's operands that gives its results.

    moved: operands, by number, that are given as they were before blocks of rows moved; each has as
    many blocks.
    """

    __slots__ = ("_dying", "_eqns", "_routine", "_written")

    def __init__(self, members: Sequence[Call], operands: Sequence[int], results: Sequence[int],
                 rows: int, moved: Mapping[int, Moves] = NOTHING) -> None:
        self._eqns = [m.eqn for m in members]
        self._routine = _routine(members, operands, results, rows, moved)
        self._written: tuple[int, ...] = ()         # results whose memory is given
        self._dying: tuple[int, ...] = ()           # operands that may be written over

    def writing(self, results: Sequence[int]) -> Blocked:
        """The function that writes these results, by number, into arrays given last."""
        return self._with(tuple(results), self._dying)

    def over(self, operands: Sequence[int]) -> Blocked:
        """The function that may write results over these operands, by number."""
        return self._with(self._written, tuple(operands))

    def _with(self, written: tuple[int, ...], dying: tuple[int, ...]) -> Blocked:
        other = Blocked.__new__(Blocked)
        other._eqns, other._routine = self._eqns, self._routine
        other._written, other._dying = written, dying
        return other

    @property
    def equations(self) -> tuple[Equation, ...]:
        """The equations that the group computes."""
        return tuple(dict.fromkeys([e for e in self._eqns if e is not None]))

    def __call__(self, *arrays: Any) -> list[Any]:
        routine = self._routine
        group = routine.group
        if group is None:
            group = routine.ready()
        if group.is_lone and not self._written and not self._dying and all(
                [x.flags.c_contiguous for x in arrays]):
            return group.at_once(arrays, self._eqns)
        given: Sequence[Any] = arrays
        memory = NOTHING
        if self._written:
            given = arrays[:routine.count]
            memory = dict(zip(self._written, arrays[routine.count:], strict=True))
        if self._dying:
            memory = dict(memory)
            for i in self._dying:
                x = given[i]
                for j in routine.over.get(i, ()) if x.flags.carray else ():
                    if j not in memory:
                        memory[j] = x
                        break
        if routine.stretch:
            given = list(given)
            for i, shape in routine.stretch.items():
                given[i] = np.broadcast_to(given[i], shape)
        key = tuple([x.strides for x in given])
        frames = routine.frames
        frame = frames.get(key)
        if frame is None:
            if len(frames) > 16:
                frames.clear()
            frame = frames[key] = Frame(group, given)
        return frame.run(given, self._eqns, memory)


class Routine:
    """What groups of the same calls share.

    count: of operands. group: made when one of them runs. frames: by the strides of operands.
    stretch: the operands that are repeated along rows, and the shapes that they then have.
    """

    __slots__ = ("_calls", "_moved", "_results", "_rows", "count", "frames", "group", "over",
                 "stretch")

    def __init__(self, calls: Sequence[tuple[Kernel, tuple[int, ...]]], count: int,
                 results: Sequence[int], rows: int, moved: Sequence[tuple[int, Moves]]) -> None:
        # Slots are numbered: the operands, then what each call computes.
        self._calls = calls
        self.count = count
        self._results = results
        self._rows = rows
        self._moved = dict(moved)
        self.group: Group | None = None
        self.frames: dict[Any, Frame] = {}
        self.stretch: dict[int, Shape] = {}
        self.over: dict[int, list[int]] = {}

    def ready(self) -> Group:
        with _BUILDING:
            if self.group is None:
                self.group = self._build()
            return self.group

    def _build(self) -> Group:
        """Number the values, give them buffers, and make the functions of the steps."""
        values, items, outputs = self._numbered()
        items = with_products(with_clips(items, values, outputs), values, outputs, self.count)
        items = self._with_views(values, items)
        count = self.count
        masks: dict[int, int | None] = {}
        cost = 0
        for i, item in enumerate(items):
            self._infer(values, item)
            kind, function, refs, o, _, _ = item
            for v in refs:
                if type(v) is int:
                    values[v].root.last = i
            if kind in VIEWS:
                continue
            times = 1               # of what a step costs for one row, in cheap steps
            for n in values[refs[0] if kind == REDUCE else o].actual:
                times *= n
            if kind == WHERE:
                masks[i] = None
                times *= DEAR
            elif kind == CALL and function not in CHEAP:
                times *= DEAR
            cost += times
        own: dict[int, int] = {}
        for j, o in enumerate(outputs):
            v = values[o]
            if o >= count and v.root is v and v.actual == v.rest:
                own.setdefault(o, j)
        for o in outputs:
            values[o].root.last = len(items)
        for i in masks:
            masks[i] = mask_for(values, items[i], i)
        scratch = assign_buffers(values, items, own, count, masks)
        self.over = _replaceable(values, items, [
            o for o in range(count) if o not in self.stretch and o not in self._moved],
            [values[o].shape for o in outputs])
        acts: list[tuple[Act, int | None]] = [
            (act(item, values, masks.get(i)), item.call) for i, item in enumerate(items)]
        for j, o in enumerate(outputs):
            if own.get(o) != j:             # given by a view, or one row for all
                acts.append((copying(o, len(values) + j), None))
        return Group(values, outputs, scratch, acts, cost, len(acts) == 1 and not masks,
                     self._moved)

    def _numbered(self) -> tuple[list[Value], list[Item], list[int]]:
        rows = self._rows
        at: list[int] = list(range(self.count))    # of operands and calls: the value
        values: list[Any] = [None] * self.count
        items: list[Item] = []
        for call, (kernel, inputs) in enumerate(self._calls):
            if isinstance(kernel.function, np.ufunc):
                refs = tuple([at[i] for i in inputs])
                for v, shape, dtype in zip(refs, kernel.shapes, kernel.dtypes, strict=False):
                    if values[v] is None:
                        values[v] = Value(shape, dtype, rows)
                items.append(new_item((CALL, kernel.function, refs, len(values), (), call)))
                at.append(len(values))
                values.append(Value(kernel.shapes[-1], kernel.dtypes[-1], rows))
                continue
            recording = kernel.recording
            assert recording is not None
            known, first = recording.values, len(values)
            made = known[recording.operands:]
            local = [*[at[i] for i in inputs], *range(first, first + len(made))]
            for v, (shape, dtype) in zip(local[:recording.operands], known, strict=False):
                if values[v] is None:
                    values[v] = Value(shape, dtype, rows)
            values.extend([Value(shape, dtype, rows) for shape, dtype in made])
            for kind, function, operands, result, axes in recording.steps:
                if axes:
                    rank = len(known[operands[0]][0])
                    axes = tuple([a - rank for a in axes])
                items.append(new_item((
                    kind, function, tuple([local[v] if type(v) is int else v for v in operands]),
                    local[result], axes, call)))
            at.append(local[recording.result])
        return values, items, [at[s] for s in self._results]

    def _with_views(self, values: list[Value], items: list[Item]) -> list[Item]:
        """The items, with a view where rows of other sizes read an operand that is repeated along
        rows: it is repeated as its first reader needs it."""
        repeated = {v for v in range(self.count) if values[v].rows is None and values[v].shape}
        if not repeated:
            return items
        first: dict[int, Shape | None] = {}
        views: dict[tuple[int, Shape | None], int] = {}
        out: list[Item] = []
        for item in items:
            rows, refs = values[item.result].rows, list(item.operands)
            for k, v in enumerate(refs):
                if type(v) is int and v in repeated and first.setdefault(v, rows) != rows:
                    assert rows is not None
                    view = views.get((v, rows))
                    if view is None:
                        view = views[v, rows] = len(values)
                        x = Value(values[v].shape, values[v].dtype, 0)
                        x.rows, x.rest = rows, values[v].shape[len(rows):]
                        x.actual = x.rest
                        values.append(x)
                        out.append(new_item((RESHAPE, None, (v,), view, (), item.call)))
                    refs[k] = view
            out.append(item._replace(operands=tuple(refs)))
        return out

    def _infer(self, values: list[Value], item: Item) -> None:
        """The part of a row that is really computed, and whose buffer it is."""
        out = values[item.result]
        if item.kind in VIEWS:
            x = values[item.operands[0]]
            out.root = x.root
            if item.kind == REPEAT:
                out.actual = x.actual
        elif item.kind != REDUCE:
            actual: Shape | None = None
            for v in item.operands:
                if type(v) is not int or not values[v].shape:
                    continue
                x = values[v]
                if x.rows is None:                          # repeated along rows
                    assert v < self.count and out.rows is not None
                    x.rows = out.rows
                    x.rest = x.actual = x.shape[len(out.rows):]
                    self.stretch[v] = (*out.rows, *x.rest)
                if actual is None or actual == x.actual:
                    actual = x.actual
                else:
                    actual = np.broadcast_shapes(actual, x.actual)
            out.actual = actual or ()


def _replaceable(values: Sequence[Value], items: Sequence[Item], operands: Sequence[int],
                 shapes: Sequence[Shape]) -> dict[int, list[int]]:
    """For operands the results whose memory may be theirs: no step reads the operand once one has
    written there, but for the step that writes first, element by element. shapes: of results.
    """
    first: dict[int, int] = {}
    for i, item in enumerate(items):
        out = values[item.result]
        if item.kind not in VIEWS and out.buffer is not None and out.buffer[0] == "out":
            first.setdefault(out.buffer[1], i)
    found: dict[int, list[int]] = {}
    for o in operands:
        x = values[o]
        for j, i in first.items():
            item, out = items[i], values[items[i].result]
            alike = x.rows is not None and x.rows == out.rows and x.key == out.key and (
                x.actual == x.rest and x.shape == shapes[j])
            if alike and (x.last < i or (x.last == i and item.kind == CALL and all(
                    v == o or values[v].root is not x for v in item.operands if type(v) is int))):
                found.setdefault(o, []).append(j)
    return found


_ROUTINES = module_table("runtime.blocks.blocked._ROUTINES", "groups of calls run block by block",
                         4096)


def _routine(members: Sequence[Call], operands: Sequence[int], results: Sequence[int],
             rows: int, moved: Mapping[int, Moves]) -> Routine:
    """The routine of a group; slots are told apart by their order only."""
    at = {s: i for i, s in enumerate((*operands, *[m[2][0] for m in members]))}
    number = at.__getitem__
    calls: list[Any] = []
    for m in members:
        calls.append(m[5])
        calls.extend(map(number, m[1]))
    key = (*calls, *map(number, results), len(operands), rows, *moved.items())
    found = _ROUTINES.get(key)
    if found is None:
        found = _ROUTINES[key] = Routine(
            [(m.kernel, tuple(map(number, m.inputs))) for m in members],    # type: ignore[misc]
            len(operands), tuple(map(number, results)), rows, tuple(moved.items()))
    return found
