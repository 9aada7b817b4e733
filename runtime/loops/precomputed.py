"""What is known of all iterations of a loop before the first.

Where a row is read or written, in which half of a cycle an iteration is: such scalars, and the few
numbers that they are where they differ from device to device, are computed from counters, scalar
items and what does not change. For all iterations at once they take the time of one, by the same
numpy calls.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..calls.call import Call
from ..calls.recording import CALL, CAST, WHERE, Recording
from ..calls.rows import SliceAt
from ..layout import Reshaped
from ..plans.plan import Plan

MOST = 1 << 18       # elements that a value may have for all iterations
# Alike for one number and for many, to the last bit.
_EXACT = frozenset({
    np.absolute, np.add, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.conjugate, np.divide,
    np.equal, np.greater, np.greater_equal, np.invert, np.less, np.less_equal, np.logical_and,
    np.logical_not, np.logical_or, np.maximum, np.minimum, np.multiply, np.negative, np.not_equal,
    np.positive, np.square, np.subtract, np.true_divide})


class Precomputed:
    """Of the body of a loop of known length, the calls that compute for all iterations at once.

    fixed: slots that do not change. carry: those that are the first outputs of the iteration
    before. items: those of what is iterated over. length: how many iterations there are.

    ahead: these calls, in order. sources: the counters and items that they read. counters: of each
    counter among the carry what an iteration adds. steps: of those that nobody reads but such
    calls, the same. given: slots that iterations get. calls: the rest. rank: the most
    dimensions that an operand or result of `ahead` has; for all iterations each has one for these,
    as many of size 1 as it lacks, and its own. shapes: of results that are no scalars.
    """

    def __init__(self, plan: Plan, fixed: Sequence[int], carry: Sequence[int],
                 items: Sequence[int], length: int) -> None:
        self.most = MOST // length
        by_result = {call.outputs[0]: call for call in plan.calls if len(call.outputs) == 1}
        self.counters: dict[int, Any] = {}
        counted: dict[int, int] = {}                # what comes out of an iteration, by counter
        for x, o in zip(carry, plan.outputs, strict=False):
            step = added(by_result.get(o), x, plan.constants)
            if step is not None:
                self.counters[x] = step
                counted[x] = o
        varying = {*self.counters, *items}
        self.ahead: list[Call] = []
        self.calls = plan.calls
        self.steps: dict[int, Any] = {}
        self.given: list[int] = []
        self.sources: list[int] = []
        self.rank = 0
        self.shapes: dict[int, tuple[int, ...]] = {}
        if varying:
            self._look(plan, fixed, varying, counted, items)

    def _look(self, plan: Plan, fixed: Sequence[int], varying: set[int], counted: dict[int, int],
              items: Sequence[int]) -> None:
        known = {*fixed, *plan.constants, *varying}
        self.calls = []
        for call in plan.calls:
            if known.issuperset(call.inputs) and not varying.isdisjoint(call.inputs) and (
                    self.is_small(call) or takes_a_number(call)):
                self.ahead.append(call)
                if call.kernel is not None and type(call.function) is not SliceAt:
                    self.rank = max(self.rank, *map(len, call.kernel.shapes))
                    self.shapes[call.outputs[0]] = call.kernel.shapes[-1]
                elif type(call.function) is Reshaped:
                    self.shapes[call.outputs[0]] = shape = call.function.shape
                    self.rank = max(self.rank, len(shape))
                varying.update(call.outputs)
                known.update(call.outputs)
            else:
                self.calls.append(call)
        readers = Counter([s for call in self.calls for s in call.inputs])
        readers.update(plan.outputs)
        self.steps = {x: step for x, step in self.counters.items()
                      if not readers[x] and readers[counted[x]] == 1}
        silent = {counted[x] for x in self.steps}
        self.given = [s for call in self.ahead for s in call.outputs
                      if readers[s] and s not in silent]
        needed = set(self.given)
        for call in reversed(self.ahead):           # not what iterations only counted by
            if not needed.isdisjoint(call.outputs):
                needed.update(call.inputs)
        self.ahead = [call for call in self.ahead if not needed.isdisjoint(call.outputs)]
        self.sources = [s for s in (*self.counters, *items) if s in needed]

    def is_small(self, call: Call) -> bool:
        """Does the call compute few numbers from few, each from one of each operand; or is it a
        scalar as an array?"""
        if type(call.function) is Reshaped:
            return math.prod(call.function.shape) == 1
        return is_elementwise(call) and call.kernel.elements <= self.most     # type: ignore


def takes_a_number(call: Call) -> bool:
    """Does the call take one element of an array?"""
    return type(call.function) is SliceAt and call.kernel is not None and not call.kernel.shapes[-1]


def is_elementwise(call: Call) -> bool:
    """Does the call compute each element from elements, so that it may be done for many at once?"""
    recording = call.recording
    return not call.changes and recording is not None and all(
        [_is_exact(step, recording) for step in recording.steps])


def _is_exact(step: Any, recording: Recording) -> bool:
    if any([type(v) is int and recording.values[v][1].kind not in "fiub"
            for v in (*step.operands, step.result)]):
        return False
    if step.kind == CALL:
        return step.function in _EXACT or all(
            [recording.values[v][1].kind in "iub" for v in (*step.operands, step.result)
             if type(v) is int])
    return step.kind in (WHERE, CAST)


def added(call: Call | None, x: int, constants: dict[int, Any]) -> Any:
    """The integer that a call adds to the scalar x, and does nothing else."""
    recording = None if call is None else call.recording
    if call is None or recording is None or len(recording.steps) != 1 or len(call.inputs) != 2:
        return None
    (step,) = recording.steps
    if step.function is not np.add or step.operands != (0, 1) or recording.values[2][0]:
        return None
    a, b = call.inputs
    found = constants.get(b) if a == x else constants.get(a) if b == x else None
    return found if found is not None and found.dtype.kind in "iu" else None


def counted(x: Any, times: int, step: Any) -> Any:
    """What adding `step` to x so many times gives; it wraps as that does."""
    return np.add(x, np.multiply(np.asarray(times).astype(step.dtype), step))


def all_counts(x: Any, times: int, step: Any) -> Any:
    """What x is before each of so many additions of `step`."""
    return np.add(x, np.multiply(np.arange(times).astype(step.dtype), step))


def with_rank(x: Any, rank: int) -> Any:
    """Numbers, one an iteration, with so many dimensions behind."""
    return x.reshape(x.shape + (1,) * rank)
