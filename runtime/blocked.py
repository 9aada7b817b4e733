"""Evaluating a group of calls block by block: what passes between them stays in the cache.

Values inside a group live in buffers of one block, written again for every block
(runtime/block_values.py); results are written where they belong. numpy lets other threads run
during a call, so that all cores take part (runtime/block_frames.py).

The steps are the numpy calls of the ops' own evaluators (runtime/recording.py) on the same
numbers, hence with the same results to the last bit. (Only the sum of an operand that does not lie
in row-major order may be added up in another order.)
"""
from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..ir.program import Equation
from .block_frames import Frame, Group
from .block_steps import act, copying
from .block_values import Item, Value, assign_buffers, mask_for
from .cores import CHEAP, DEAR
from .recording import CALL, REDUCE, REPEAT, RESHAPE, VIEWS, WHERE, Recording

Shape = tuple[int, ...]
_BUILDING = threading.Lock()


class Member(NamedTuple):
    """A call of a group: what it does, and the slots that it reads and writes."""
    recording: Recording
    inputs: tuple[int, ...]
    output: int
    eqn: Equation | None


class Blocked:
    """The function of a group's operands that gives its results."""

    __slots__ = ("_frames", "_group", "_members", "_operands", "_results", "_rows", "_stretch",
                 "_written")

    def __init__(self, members: Sequence[Member], operands: Sequence[int], results: Sequence[int],
                 rows: int) -> None:
        self._members = members
        self._operands = operands
        self._results = results
        self._rows = rows
        self._group: Group | None = None
        self._frames: dict[Any, Frame] = {}
        # Operands that are repeated along rows, and the shapes that they then have.
        self._stretch: dict[int, Shape] = {}
        self._written: tuple[int, ...] = ()         # results whose memory is given

    def writing(self, results: Sequence[int]) -> Blocked:
        """The function that writes these results, by number, into arrays given last."""
        other = Blocked(self._members, self._operands, self._results, self._rows)
        other._written = tuple(results)
        return other

    @property
    def equations(self) -> tuple[Equation, ...]:
        """The equations that the group computes."""
        return tuple(dict.fromkeys(m.eqn for m in self._members if m.eqn is not None))

    def __call__(self, *arrays: Any) -> list[Any]:
        group = self._group
        if group is None:
            with _BUILDING:
                group = self._group = self._group or self._build()
        given: Sequence[Any] = arrays
        memory: dict[int, Any] = {}
        if self._written:
            given = arrays[:len(self._operands)]
            memory = dict(zip(self._written, arrays[len(given):], strict=True))
        if self._stretch:
            given = list(given)
            for i, shape in self._stretch.items():
                given[i] = np.broadcast_to(given[i], shape)
        key = tuple([x.strides for x in given])
        frame = self._frames.get(key)
        if frame is None:
            if len(self._frames) > 16:
                self._frames.clear()
            frame = self._frames[key] = Frame(group, given)
        return frame.run(given, memory)

    # -- building ------------------------------------------------------------------------------
    def _build(self) -> Group:
        """Number the values, give them buffers, and make the functions of the steps."""
        values, items, outputs = self._numbered()
        count = len(self._operands)
        for item in items:
            self._infer(values, item, count)
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
        masks = {i: mask_for(values, item, i) for i, item in enumerate(items) if item.kind == WHERE}
        scratch = assign_buffers(values, items, own, count, masks)
        acts = [(act(item, values, masks.get(i)), item.eqn) for i, item in enumerate(items)]
        for j, o in enumerate(outputs):
            if own.get(o) != j:             # given by a view, or one row for all
                acts.append((copying(o, len(values) + j), None))
        return Group(values, outputs, scratch, acts, sum(_cost(item, values) for item in items))

    def _numbered(self) -> tuple[list[Value], list[Item], list[int]]:
        at: dict[int, int] = {}
        values: list[Value] = []
        items: list[Item] = []
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
            values.append(Value(*shapes[i], self._rows))
        for m in self._members:
            local: list[int] = [at[s] for s in m.inputs]
            for shape, dtype in m.recording.values[m.recording.operands:]:
                local.append(len(values))
                values.append(Value(shape, dtype, self._rows))
            for step in m.recording.steps:
                source = [local[v] if type(v) is int else v for v in step.operands]
                rank = len(m.recording.values[step.operands[0]][0]) if step.axes else 0
                items.append(Item(step.kind, step.function, tuple(source), local[step.result],
                                   tuple(a - rank for a in step.axes), m.eqn))
            at[m.output] = local[m.recording.result]
        return values, items, [at[s] for s in self._results]

    def _infer(self, values: list[Value], item: Item, count: int) -> None:
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
                    self._stretch[v] = (*out.rows, *x.rest)
            out.actual = np.broadcast_shapes(*(x.actual for x in sources if x.shape))


def _cost(item: Item, values: Sequence[Value]) -> int:
    """What a step costs for one row, in cheap steps."""
    if item.kind in VIEWS:
        return 0
    elements = max(math.prod(values[v].actual) for v in (*item.operands, item.result)
                   if type(v) is int)
    dear = item.kind == WHERE or (item.kind == CALL and item.function not in CHEAP)
    return elements * DEAR if dear else elements
