"""A plan as one Python function: a line for each numpy call, and nothing between them.

A plan that runs again and again (a loop's body, a step of training) is written out as source and
compiled. Where it is known of which numpy calls an op consists (runtime/calls/symbolic.py), these
calls stand there themselves, without the checks of an evaluator, which were made on the types. For
small arrays that halves the time of a run. The source has no names or texts of the program in it:

    def run(arguments):
        try:
            v0, v1 = arguments
            v2 = f0(v0, v1)                 # numpy.add
            v3 = v2.reshape(c0); v2 = None
            return [v3]
        except Exception as error:
            note(error)
            raise
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

from ...arrays.storage import freeze_result
from ...ir.kernels.elementwise import float16
from ...ir.kernels.elementwise.extremes import BY_CLIP
from ...ir.kernels.elementwise.extremes import FEWEST as FEWEST_COMPARED
from ...ir.kernels.elementwise.selection import FEWEST as FEWEST_SELECTED
from ...ir.kernels.elementwise.selection import selected
from ...ir.kernels.merged_repeats import may_repeat, merged
from ...ir.kernels.staged_reductions import reducer_of
from ...ir.passes import Pass, pipeline
from ...ir.program import Equation
from ...ir.support.caches import cached
from ..calls.call import Call, last_reads
from ..calls.indexed import by_index
from ..calls.symbolic import (
    BITS,
    CALL,
    CAST,
    INDEX,
    REDUCE,
    REPEAT,
    RESHAPE,
    TRANSPOSE,
    VIEWS,
    Recording,
    constant,
)
from ..layout import Reshaped
from .constants import FOLD_CONSTANTS
from .draft import Draft, optimized
from .in_place import WRITE_OVER

Run = Callable[[Sequence[Any]], list[Any]]

WRITTEN = pipeline(
    Pass("index-parts", "", lambda d: d.of(by_index(d.calls, d.outputs)),
         "slices and updates at scalar starts become indexing"),
    FOLD_CONSTANTS, WRITE_OVER)
"""The passes over the calls of a plan that is written out as a function."""


def inlined(*arrays: Any) -> Any:
    """Stands for the function of a call whose numpy calls are written out; it is never called."""
    raise AssertionError("the numpy calls stand in its place")


class Writer:
    """Collects lines of source and the objects that they name, and compiles them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.indent = " " * 8                       # within `def` and `try`
        self._of: dict[int, str] = {}
        self._eqns: dict[int, Equation] = {}        # by line number
        self._fresh = 0

    def name(self, value: Any, letter: str = "c") -> str:
        found = self._of.get(id(value))
        if found is None:
            found = self._of[id(value)] = f"{letter}{len(self._of)}"
            self.names[found] = value
        return found

    def line(self, text: str, eqn: Equation | None = None) -> None:
        self.lines.append(self.indent + text)
        if eqn is not None:
            self._eqns[len(self.lines) + 2] = eqn

    def fresh(self) -> str:
        self._fresh += 1
        return f"t{self._fresh}"

    def function(self, parameters: str) -> Any:
        """The compiled function. An error in a line names the equation of the line."""
        source = "\n".join((f"def run({parameters}):", "    try:", *self.lines,
                            "    except Exception as error:", "        note(error, run.__code__)",
                            "        raise", ""))
        eqns = self._eqns

        def note(error: Exception, code: CodeType) -> None:
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code is not code:
                trace = trace.tb_next
            eqn = None if trace is None else eqns.get(trace.tb_lineno)
            if eqn is not None:
                error.add_note(f"while running `{eqn.op.name}` of {eqn.location}")

        names = {**self.names, "note": note}
        exec(_code(source) if len(source) < LONGEST_CACHED else _compiled(source), names)
        return names["run"]


class Lines:
    """Writes the calls of a plan (plan.py) as lines of source, each a numpy call.

    letter: the first letter of its variables. fixed: slots that stay alive after the lines.
    carried: of a loop's body, the inputs that take the first outputs in the next iteration. used:
    the slots of `carried` that are overwritten.
    """

    def __init__(self, writer: Writer, plan: Any, letter: str = "v", fixed: Sequence[int] = (),
                 carried: Sequence[int] = ()) -> None:
        self.writer, self.letter = writer, letter
        draft = optimized(Draft(plan.calls, plan.outputs, plan.constants, carried, small=True),
                          WRITTEN)
        self.calls, self.constants = draft.calls, draft.constants
        self.used = draft.used
        self.fixed = {*self.constants, *fixed}
        self.dead = last_reads(self.calls, (*plan.outputs, *self.fixed))

    def slot(self, s: int) -> str:
        """The name of the variable or constant in a slot."""
        if s in self.constants:
            return self.writer.name(self.constants[s], "k")
        return f"{self.letter}{s}"

    def unpack(self, slots: Sequence[int]) -> str:
        """The targets of an assignment to several slots."""
        return "".join(f"{self.letter}{s}, " for s in slots)

    def write(self) -> None:
        """Write a line, or several, for each call of the plan."""
        w = self.writer
        for call, ends in zip(self.calls, self.dead, strict=True):
            recording = call.recording
            operands = list(map(self.slot, call.inputs))
            if recording is not None:
                (out,) = call.outputs
                inline(w, recording, operands, self.slot(out), call.eqn)
            elif hasattr(call.function, "write"):
                call.function.write(w, call, operands, self.slot(call.outputs[0]), self.constants)
            elif type(call.function) is Reshaped:
                w.line(f"{self.slot(call.outputs[0])} = {operands[0]}.reshape("
                       f"{call.function.shape})", call.eqn)
            else:
                targets = self.unpack(call.outputs) or "_" if call.several else (
                    self.slot(call.outputs[0]))
                w.line(f"{targets} = {w.name(call.function, 'f')}({', '.join(operands)})",
                       call.eqn)
            self.drop([s for s in ends if s not in self.fixed])

    def drop(self, slots: Sequence[int]) -> None:
        """Append to the last line the release of these slots, whose live ranges end there."""
        if slots:
            self.writer.lines[-1] += "; " + " = ".join(map(self.slot, slots)) + " = None"


def generate(plan: Any) -> Run:
    """A plan (plan.py) as a function."""
    w, outputs = Writer(), plan.outputs
    lines = Lines(w, plan)
    if plan.inputs:
        w.line(lines.unpack(plan.inputs) + "= arguments")
    lines.write()
    results = list(map(lines.slot, outputs))
    if plan.read_only:
        own = set(outputs).intersection([s for call in lines.calls if _makes_new(call)
                                         for s in call.outputs])
        for s in dict.fromkeys(outputs):
            if s in own:
                w.line(f"{lines.slot(s)}.setflags(False)")
        keep = w.name(freeze_result, "f")
        results = [x if s in own else f"{keep}({x})" for s, x in
                   zip(outputs, results, strict=True)]
    w.line(f"return [{', '.join(results)}]")
    return w.function("arguments")


def _makes_new(call: Call) -> bool:
    """Is the result a new array that nothing else refers to? (A numpy scalar is not an array.)"""
    recording = call.recording
    return recording is not None and bool(recording.values[recording.result][0]) and bool(
        recording.steps) and recording.steps[-1].kind not in VIEWS


def _compiled(source: str) -> CodeType:
    return compile(source, "<a plan of shardtrace>", "exec")


# Compiling takes three quarters of the time, and plans of equal calls have equal sources.
_code = cached(1024, "code of plans, by source")(_compiled)
LONGEST_CACHED = 1 << 16


def inline(w: Writer, recording: Recording, operands: Sequence[str], target: str,
           eqn: Equation | None) -> None:
    """Write the numpy calls of an op, one a line.

    Intermediate values have the same names in each op, so each dies with the next op.
    """
    at: dict[int, str] = dict(enumerate(operands))
    for i, step in enumerate(recording.steps):
        out = at[step.result] = target if step.result == recording.result else f"s{i}"
        args = [at[v] if type(v) is int else w.name(constant(v)) for v in step.operands]
        w.line(f"{out} = {expression(w, step, args, recording.values, None)}", eqn)
    if recording.result < recording.operands:
        w.line(f"{target} = {at[recording.result]}", eqn)


_CASTS = {(float16.F32, float16.F16): float16.to_half,
          (float16.F16, float16.F32): float16.to_single}


def expression(w: Writer, step: Any, args: Sequence[str], values: Any, memory: str | None) -> str:
    """The source of a numpy call. values: shapes and dtypes. memory: the array that gets its
    result, for calls that can write to one.
    """
    shape, dtype = values[step.result]
    listed, end = ", ".join(args), "" if memory is None else f", {memory}"
    if step.kind == CALL:
        function = step.function
        if function in BY_CLIP and math.prod(shape) >= FEWEST_COMPARED:
            function = BY_CLIP[function]
        return f"{w.name(function, 'f')}({listed}{end and f', out={memory}'})"
    if step.kind == REDUCE:
        reduce = reducer_of(step.function, step.axes, *values[step.operands[0]])
        if reduce is not None:
            return f"{w.name(reduce, 'f')}({listed}{end})"
        axes = step.axes if len(step.axes) > 1 else step.axes[0]
        return f"{w.name(step.function, 'f')}.reduce({listed}, {axes}, {w.name(dtype)}{end})"
    if step.kind == CAST:
        v = step.operands[0]
        convert = _CASTS.get((values[v][1], dtype)) if type(v) is int else None
        if convert is not None:
            return f"{w.name(convert, 'f')}({listed}{end})"
        if memory is not None:
            return f"{w.name(np.copyto, 'f')}({memory}, {listed}, 'unsafe')"
        return f"{listed}.astype({w.name(dtype)})"
    if step.kind == BITS:
        return f"{listed}.view({w.name(dtype)})"
    if step.kind == RESHAPE:
        if may_repeat(values[step.operands[0]][0], shape):
            return f"{w.name(merged, 'f')}({listed}, {shape})"
        return f"{listed}.reshape({shape})"
    if step.kind == REPEAT:
        return f"{w.name(np.broadcast_to, 'f')}({listed}, {shape})"
    if step.kind == TRANSPOSE:
        return f"{listed}.transpose({step.function})"
    if step.kind == INDEX:
        return f"{listed}[{w.name(step.function)}]"
    choose = np.where if math.prod(shape) < FEWEST_SELECTED else selected
    return f"{w.name(choose, 'f')}({listed})"
