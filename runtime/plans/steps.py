"""A long plan as a list of steps over registers.

To write a plan out as source (runtime/plans/generated.py) takes longer than many of its runs where
it has thousands of calls. Here they stay a list; but where an op is one numpy call, the step is
this call itself, and results take the registers of values that end there, so that there is little
to do between two calls.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import itemgetter, length_hint, methodcaller
from typing import Any

import numpy as np

from ...ir.kernels.merged_repeats import may_repeat, merged
from ...ir.program import Equation
from ..calls.call import Call
from ..calls.ownership import folded, in_place
from ..calls.recording import (
    CALL,
    CAST,
    INDEX,
    REDUCE,
    REPEAT,
    RESHAPE,
    TRANSPOSE,
    Recording,
    Step,
    constant,
)
from ..calls.short_rows import quicker
from ..storage import settled
from .generated import BY_NAME, Run, repeated

# In place of a second operand: there are more of them, or none; results are several, too; the
# registers that are written end here.
_MANY, _SEVERAL, _END = -1, -2, -3

_Step = tuple[Callable[..., Any] | None, Any, Any, Any]     # function, operands, what is written


def _nothing(values: Any) -> tuple[()]:
    return ()


class _Registers:
    """Which slot lies where. A register is free again when the value in it has ended."""

    def __init__(self, inputs: Sequence[int], constants: dict[int, Any]) -> None:
        self.template: list[Any] = [None] * len(inputs)
        self.at: dict[int, int] = {}
        self.free: list[int] = []
        self._numbers: dict[int, int] = {}
        for slot, value in constants.items():
            self.at[slot] = self._new(value)
        self.at.update({slot: i for i, slot in enumerate(inputs)})

    def _new(self, value: Any = None) -> int:
        self.template.append(value)
        return len(self.template) - 1

    def taken(self, slot: int) -> int:
        """A register for a new value."""
        found = self.at[slot] = self.free.pop() if self.free else self._new()
        return found

    def constant(self, value: Any) -> int:
        found = self._numbers.get(id(value))
        if found is None:
            found = self._numbers[id(value)] = self._new(value)
        return found


def stepwise(calls: Sequence[Call], dead: Sequence[tuple[int, ...]], inputs: Sequence[int],
             outputs: Sequence[int], constants: dict[int, Any], kept: bool) -> Run:
    """The function of a plan, as runtime/plans/generated.py gives it."""
    constants = folded(calls, constants)
    reused = in_place(calls, dead, outputs, constants)
    registers = _Registers(inputs, constants)
    steps: list[_Step] = []
    eqns: list[Equation | None] = []
    alike: dict[_Step, _Step] = {}      # many steps are; one object for them stays in cache

    def append(step: _Step, eqn: Equation | None) -> None:
        steps.append(alike.setdefault(step, step))
        eqns.append(eqn)

    for call, ends in zip(calls, dead, strict=True):
        if call.outputs and call.outputs[0] in constants:
            continue
        function, reads = _direct(call, registers, reused.get(call.outputs[0])
                                  if call.outputs else None)
        gone = [registers.at[s] for s in ends if s not in constants and s in registers.at]
        registers.free.extend(gone)
        writes: Any = tuple(map(registers.taken, call.outputs))
        left = set(gone).difference(writes)
        for s in ends:
            if s in call.outputs:                   # a result that nobody reads
                left.add(registers.at[s])
                registers.free.append(registers.at[s])
        append((function, *_operands(reads, call.several),
                writes if call.several else writes[0]), call.eqn)
        if left:
            append((None, None, _END, tuple(sorted(left))), call.eqn)
    results = [registers.at[s] for s in outputs]
    template, count = registers.template, len(inputs)

    def run(arguments: Sequence[Any]) -> list[Any]:
        values = template.copy()
        values[:count] = arguments
        following = iter(steps)
        try:
            for function, a, b, w in following:
                if b is None:
                    values[w] = function(values[a])  # type: ignore[misc]
                elif b >= 0:
                    values[w] = function(values[a], values[b])  # type: ignore[misc]
                elif b == _END:
                    for i in w:
                        values[i] = None
                elif b == _MANY:
                    values[w] = function(*a(values))  # type: ignore[misc]
                else:
                    for i, x in zip(w, function(*a(values)), strict=True):  # type: ignore[misc]
                        values[i] = x
        except Exception as error:
            eqn = eqns[len(steps) - length_hint(following) - 1]
            if eqn is not None:
                error.add_note(f"while running `{eqn.op.name}` of {eqn.location}")
            raise
        out = [values[i] for i in results]
        return list(map(settled, out)) if kept else out

    return run


def _operands(reads: Sequence[int], several: bool) -> tuple[Any, Any]:
    """How a step reads its operands from the registers: one, two, or otherwise."""
    if len(reads) == 1 and not several:
        return reads[0], None
    if len(reads) == 2 and not several:
        return reads[0], reads[1]
    kind = _SEVERAL if several else _MANY
    if len(reads) > 1:
        return itemgetter(*reads), kind
    return (itemgetter(slice(reads[0], reads[0] + 1)) if reads else _nothing), kind


def _direct(call: Call, registers: _Registers, spare: int | None
            ) -> tuple[Callable[..., Any], list[int]]:
    """What a call comes to, and the registers that it reads. spare: the slot to be written over."""
    reads = [registers.at[s] for s in call.inputs]
    recording = None if call.kernel is None or call.several else call.kernel.recording
    if recording is None or len(recording.steps) != 1:
        return call.function, reads
    (step,) = recording.steps
    given = [reads[v] if type(v) is int else registers.constant(constant(v))
             for v in step.operands]
    function = step.function
    if step.kind != CALL:
        return _other(step, recording), given
    if spare is not None and function not in BY_NAME:
        given.append(registers.at[spare])
    return function, given


def _other(step: Step, recording: Recording) -> Callable[..., Any]:
    """The function of the operands of a step that is no plain call."""
    shape, dtype = recording.values[step.result]
    if step.kind == REDUCE:
        reduce = quicker(step.function, recording.values[step.operands[0]], step.axes)
        if reduce is not None:
            return reduce
        return functools.partial(step.function.reduce, axis=step.axes, dtype=dtype)
    if step.kind == CAST:
        return methodcaller("astype", dtype)
    if step.kind == RESHAPE:
        if may_repeat(recording.values[step.operands[0]][0], shape):
            return lambda x: merged(x, shape)
        return methodcaller("reshape", shape)
    if step.kind == REPEAT:
        return lambda x: repeated(x, shape)
    if step.kind == TRANSPOSE:
        return methodcaller("transpose", step.function)
    if step.kind == INDEX:
        return itemgetter(step.function)
    return np.where
