"""Straight-line plans: a program after every decision has been made.

A plan is a list of calls over numbered slots. Each call reads slots, writes one or several, and
names the slots whose live range ends there, so that buffers are freed as early as possible. Running
a plan does nothing else: no lookup by name, no type, no shape rule. A plan that runs often is
written out as a Python function (generated.py).
"""
from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ...arrays.storage import freeze_result
from ...ir.kernels.device_dimensions import copied
from ...ir.program import Equation
from ...ir.support.named_tuple import NamedTuple
from ..calls.call import Call, Function, last_reads, new_call
from ..calls.symbolic import Kernel
from ..numerics import silently
from .blocked import Blocked
from .draft import Draft, optimized
from .generated import Run, generate
from .passes import PLANNED
from .tiled_fusion import LARGE

# A call as a line of a function saves 0.3 to 1 us a run, and takes some 15 to 30 us to write and
# compile.
FEW = 2                 # runs before a plan becomes a function
ROUNDS = 12             # iterations of a loop, which count as one run
LONG = 2000             # calls from which a plan is long, and takes a while to compile
MANY = 40               # runs before a long plan becomes a function


class _Timed(threading.local):
    """Where this thread reports how long its calls take (runtime/profile.py); usually nowhere."""

    recorder: Any = None


TIMED = _Timed()


class PlanBuilder:
    """Collects calls; `finish` makes a plan of them."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.slots = 0
        self.inputs: list[int] = []
        self.constants: dict[int, Any] = {}

    def new_slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def input(self) -> int:
        self.inputs.append(self.new_slot())
        return self.inputs[-1]

    def constant(self, value: Any) -> int:
        slot = self.new_slot()
        self.constants[slot] = value
        return slot

    def call(self, function: Function, inputs: Sequence[int], eqn: Equation | None = None,
             kernel: Kernel | None = None) -> int:
        """Append a call of a function that returns one array; returns the slot of its result."""
        slot = self.slots
        self.slots = slot + 1
        self.calls.append(new_call((function, tuple(inputs), (slot,), False, eqn, kernel, False)))
        return slot

    def call_several(self, function: Function, inputs: Sequence[int], count: int,
                     eqn: Equation | None = None) -> list[int]:
        """Append a call of a function that returns `count` arrays; returns their slots."""
        slots = [self.new_slot() for _ in range(count)]
        self.calls.append(Call(function, tuple(inputs), tuple(slots), True, eqn))
        return slots

    def finish(self, outputs: Sequence[int], read_only: bool = False) -> Plan:
        """The plan that returns these slots. Calls whose results are not read stay.

        read_only: freeze the results (`storage.freeze_result`), since the user may keep them.
        """
        draft = Draft(self.calls, outputs, self.constants)
        only = self.calls[0].kernel if len(self.calls) == 1 else None
        if only is None or only.changes or only.elements >= LARGE:  # else there is nothing to plan
            draft = optimized(draft, PLANNED)
        return Plan(draft, self.inputs, self.slots, read_only)

    def finish_loop(self, outputs: Sequence[int], carried: Sequence[int]) -> LoopBody:
        """The plan of a loop's body. carried: the inputs that take its first outputs next."""
        draft = optimized(Draft(self.calls, outputs, self.constants, carried), PLANNED)
        position = {slot: i for i, slot in enumerate(carried)}
        return LoopBody(Plan(draft, self.inputs, self.slots),
                        tuple([position[slot] for slot in draft.used]))


class LoopBody(NamedTuple):
    """The plan of a loop's body. own: positions in the carry that the plan overwrites, so that they
    are copied before the first iteration.
    """
    plan: Plan
    own: tuple[int, ...] = ()

    def with_copies(self, carry: Sequence[Any]) -> Sequence[Any]:
        """The carry for the first iteration, with copies of what the plan overwrites."""
        if not self.own:
            return carry
        out = list(carry)
        for i in self.own:
            out[i] = copied(carry[i])
        return out


class Plan:
    """A finished plan; several threads may `run` it at once.

    At first it is interpreted call by call; one that runs often is compiled to a function.
    """

    __slots__ = ("_left", "calls", "constants", "dead", "function", "inputs", "outputs",
                 "read_only", "template")

    def __init__(self, draft: Draft, inputs: Sequence[int], slots: int, read_only: bool = False
                 ) -> None:
        self.calls, self.constants = list(draft.calls), draft.constants.copy()
        self.inputs, self.outputs = tuple(inputs), tuple(draft.outputs)
        self.dead = last_reads(self.calls, (*self.outputs, *self.constants))
        self.read_only = read_only
        self.template: list[Any] = [None] * slots
        for slot, value in self.constants.items():
            self.template[slot] = value
        self.function: Run | None = None       # once it is compiled
        self._left = FEW if len(self.calls) < LONG else MANY

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The results for these arguments. An error names the equation that was running."""
        return silently(self.step, arguments)

    def step(self, arguments: Sequence[Any]) -> list[Any]:
        """`run` within another run, or where numpy's floating-point warnings are off already."""
        function = self.function
        if TIMED.recorder is not None:
            return self.call_by_call(arguments)
        if function is not None:
            return function(arguments)
        self._left -= 1
        if self._left < 0:
            self.function = generate(self)
            return self.function(arguments)
        return self.call_by_call(arguments)

    def call_by_call(self, arguments: Sequence[Any]) -> list[Any]:
        """Interpret the plan: for callers that compile it themselves or time each call."""
        recorder = TIMED.recorder
        values = self.template.copy()
        for slot, x in zip(self.inputs, arguments, strict=True):
            values[slot] = x
        at, eqn = values.__getitem__, None
        ran: set[int] = set()           # an equation of several calls counts as one run
        try:
            for call, ends in zip(self.calls, self.dead, strict=True):
                function, read, made, several, eqn, _, _ = call
                count = len(read)
                if recorder is not None:
                    x = _timed(call, list(map(at, read)), recorder, ran)
                elif count == 2:                # most are: `map` takes as long as such a call
                    x = function(values[read[0]], values[read[1]])
                elif count == 1:
                    x = function(values[read[0]])
                else:
                    x = function(*map(at, read))
                if several:
                    for slot, x in zip(made, x, strict=True):       # noqa: B020
                        values[slot] = x
                else:
                    values[made[0]] = x
                for slot in ends:
                    values[slot] = None
        except Exception as error:
            if eqn is not None:
                error.add_note(f"while running `{eqn.op.name}` of {eqn.location}")
            raise
        results = [values[slot] for slot in self.outputs]
        return list(map(freeze_result, results)) if self.read_only else results


def _timed(call: Call, given: Sequence[Any], recorder: Any, ran: set[int]) -> Any:
    """The result of a timed call. ran: ids of the equations that have begun."""
    eqns = call.function.equations if type(call.function) is Blocked else (
        () if call.eqn is None else (call.eqn,))
    with recorder.call(eqns, [id(e) not in ran for e in eqns]):
        ran.update(map(id, eqns))
        return call.function(*given)
