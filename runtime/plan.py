"""Straight-line plans: what is left of a program once every decision is made.

A plan is a list of calls over numbered slots. Each call reads slots, writes one or several, and
names the slots that nobody reads after it, so that buffers are given back as early as possible.
Nothing else happens when a plan runs: no look-up by name, no type, no shape rule.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ..ir.program import Equation
from .calls import Call, Function
from .fusion import fused
from .recording import Kernel


class PlanBuilder:
    """Collects calls; `finish` computes liveness."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.slots = 0
        self.inputs: list[int] = []
        self.constants: list[tuple[int, Any]] = []

    def new_slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def input(self) -> int:
        slot = self.new_slot()
        self.inputs.append(slot)
        return slot

    def constant(self, value: Any) -> int:
        slot = self.new_slot()
        self.constants.append((slot, value))
        return slot

    def call(self, function: Function, inputs: Sequence[int], eqn: Equation | None = None,
             kernel: Kernel | None = None) -> int:
        """Append a call of a function that returns one array; the slot of its result."""
        slot = self.new_slot()
        self.calls.append(Call(function, tuple(inputs), (slot,), False, eqn, kernel))
        return slot

    def call_several(self, function: Function, inputs: Sequence[int], count: int,
                     eqn: Equation | None = None) -> list[int]:
        """Append a call of a function that returns a list of `count` arrays."""
        slots = [self.new_slot() for _ in range(count)]
        self.calls.append(Call(function, tuple(inputs), tuple(slots), True, eqn))
        return slots

    def finish(self, outputs: Sequence[int]) -> Plan:
        """The plan whose results are these slots. Calls whose results nobody reads stay."""
        return self._plan(self.calls, self.inputs, outputs)

    def finish_loop(self, outputs: Sequence[int], fixed: Sequence[int],
                    again: Callable[[Call], bool]) -> tuple[Plan | None, Plan]:
        """The plan of a loop's body, and before it one of what all iterations compute alike.

        fixed: inputs that do not change. again: whether a call must run in every iteration all the
        same. The first plan takes the fixed inputs; the second takes all, then the first's results.
        """
        known = {*fixed, *(s for s, _ in self.constants)}
        before: list[Call] = []
        rest: list[Call] = []
        for call in self.calls:
            if known.issuperset(call.inputs) and not again(call):
                before.append(call)
                known.update(call.outputs)
            else:
                rest.append(call)
        if not before:
            return None, self.finish(outputs)
        read = {*outputs, *(s for call in rest for s in call.inputs)}
        passed = [s for call in before for s in call.outputs if s in read]
        return (self._plan(before, fixed, passed),
                self._plan(rest, [*self.inputs, *passed], outputs))

    def _plan(self, calls: Sequence[Call], inputs: Sequence[int], outputs: Sequence[int]) -> Plan:
        calls = fused(calls, outputs)
        seen = {*outputs, *(s for s, _ in self.constants)}
        dead: list[tuple[int, ...]] = []
        for call in reversed(calls):
            last = [s for s in dict.fromkeys((*call.inputs, *call.outputs)) if s not in seen]
            seen.update(last)
            dead.append(tuple(last))
        dead.reverse()
        steps = [_step(call, ends) for call, ends in zip(calls, dead, strict=True)]
        template: list[Any] = [None] * self.slots
        for slot, value in self.constants:
            template[slot] = value
        return Plan(template, tuple(inputs), steps, tuple(outputs))


def _step(call: Call, dead: tuple[int, ...]) -> tuple:
    reads: Any
    if not call.inputs:
        reads = None
    elif len(call.inputs) == 1:
        reads = call.inputs[0]
    else:
        reads = itemgetter(*call.inputs)
    writes: Any = call.outputs if call.several else call.outputs[0]
    return call.function, reads, writes, dead, call.eqn


class Plan:
    """A finished plan; `run` may be called by several threads at once."""

    __slots__ = ("inputs", "outputs", "steps", "template")

    def __init__(self, template: list[Any], inputs: tuple[int, ...], steps: list[tuple],
                 outputs: tuple[int, ...]) -> None:
        self.template = template
        self.inputs = inputs
        self.steps = steps
        self.outputs = outputs

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The result arrays for these argument arrays. An error names the equation at work."""
        values = self.template.copy()
        for slot, x in zip(self.inputs, arguments, strict=True):
            values[slot] = x
        eqn: Equation | None = None
        try:
            with np.errstate(all="ignore"):
                for step in self.steps:
                    function, reads, writes, dead, eqn = step
                    if type(reads) is int:
                        out = function(values[reads])
                    elif reads is None:
                        out = function()
                    else:
                        out = function(*reads(values))
                    if type(writes) is int:
                        values[writes] = out
                    else:
                        for slot, x in zip(writes, out, strict=True):
                            values[slot] = x
                    for slot in dead:
                        values[slot] = None
        except Exception as error:
            if eqn is not None:
                error.add_note(f"while running `{eqn.op.name}` of {eqn.location}")
            raise
        return [values[slot] for slot in self.outputs]
