"""A plan as one Python function: a line for each numpy call, and nothing between them.

A plan that runs again and again (a loop's body, a step of training) is written out as source and
compiled. Where it is known of which numpy calls an op consists (runtime/recording.py), these calls
stand there themselves, without the checks of an evaluator, which were made on the types. For small
arrays that halves the time of a run. The source has no names or texts of the program in it:

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

import functools
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

from ..ir.program import Equation
from .calls import Call
from .ownership import folded, in_place, is_new
from .recording import CALL, CAST, INDEX, REDUCE, REPEAT, RESHAPE, TRANSPOSE, Recording, constant
from .storage import settled

Run = Callable[[Sequence[Any]], list[Any]]
BY_NAME = frozenset({np.maximum, np.minimum})     # numpy warns of an `out` that has no name


def repeated(x: Any, shape: tuple[int, ...]) -> Any:
    """x with its dimensions of size 1 repeated, as `numpy.broadcast_to` gives it, in less time."""
    if x.dtype.isbuiltin == 1 and type(x) is np.ndarray and x.flags.c_contiguous:
        strides = tuple([0 if m != n else s for m, n, s in
                         zip(x.shape, shape, x.strides, strict=True)])
        view = np.ndarray(shape, x.dtype, x, 0, strides)
        view.flags.writeable = False
        return view
    return np.broadcast_to(x, shape)


class _Writer:
    """Lines of source, and the objects that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._of: dict[int, str] = {}
        self.eqns: dict[int, Equation] = {}         # by line number
        self._fresh = 0

    def name(self, value: Any, letter: str = "c") -> str:
        found = self._of.get(id(value))
        if found is None:
            found = self._of[id(value)] = f"{letter}{len(self._of)}"
            self.names[found] = value
        return found

    def line(self, text: str, eqn: Equation | None = None) -> None:
        self.lines.append(text)
        if eqn is not None:
            self.eqns[len(self.lines) + 2] = eqn

    def fresh(self) -> str:
        self._fresh += 1
        return f"t{self._fresh}"


def generate(calls: Sequence[Call], dead: Sequence[tuple[int, ...]], inputs: Sequence[int],
             outputs: Sequence[int], constants: dict[int, Any], kept: bool) -> Run:
    """The function of a plan. dead: for each call the slots that nobody reads after it. kept:
    whether results are made what somebody may keep (storage.settled).
    """
    w = _Writer()
    constants = folded(calls, constants)
    reused = in_place(calls, dead, outputs, constants)

    def slot(s: int) -> str:
        return w.name(constants[s], "k") if s in constants else f"v{s}"

    if inputs:
        w.line(", ".join(f"v{s}" for s in inputs) + ", = arguments")
    for call, ends in zip(calls, dead, strict=True):
        if call.outputs and call.outputs[0] in constants:
            continue
        operands = [slot(s) for s in call.inputs]
        recording = None if call.kernel is None else call.kernel.recording
        if call.several:
            targets = "".join(f"v{s}, " for s in call.outputs)
            function = w.name(call.function, "f")
            w.line(f"{targets or '_'} = {function}({', '.join(operands)})", call.eqn)
        elif recording is None:
            function = w.name(call.function, "f")
            w.line(f"v{call.outputs[0]} = {function}({', '.join(operands)})", call.eqn)
        else:
            target = call.outputs[0]
            spare = reused.get(target)
            _inline(w, recording, operands, f"v{target}", call.eqn,
                    None if spare is None else f"v{spare}")
        gone = [f"v{s}" for s in ends if s not in constants]
        if gone:
            w.lines[-1] += "; " + " = ".join(gone) + " = None"
    results = [slot(s) for s in outputs]
    if kept:
        own = {call.outputs[0] for call in calls if is_new(call)}.difference(constants)
        w.lines.extend(f"{slot(s)}.setflags(False)" for s in dict.fromkeys(outputs) if s in own)
        keep = w.name(settled, "f")
        results = [slot(s) if s in own else f"{keep}({slot(s)})" for s in outputs]
    w.line(f"return [{', '.join(results)}]")
    body = "\n".join("        " + text for text in w.lines)
    source = (f"def run(arguments):\n    try:\n{body}\n    except Exception as error:\n"
              "        note(error, run.__code__)\n        raise\n")
    eqns = w.eqns

    def note(error: Exception, code: CodeType) -> None:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        eqn = None if trace is None else eqns.get(trace.tb_lineno)
        if eqn is not None:
            error.add_note(f"while running `{eqn.op.name}` of {eqn.location}")

    names = {**w.names, "note": note}
    exec(_code(source) if len(source) < LONGEST_KEPT else _compiled(source), names)
    return names["run"]


def _compiled(source: str) -> CodeType:
    return compile(source, "<a plan of shardtrace>", "exec")


# To compile takes three quarters of the time; plans of equal calls have equal sources.
_code = functools.lru_cache(maxsize=1024)(_compiled)
LONGEST_KEPT = 1 << 16


def forget_sources() -> None:
    _code.cache_clear()


def _inline(w: _Writer, recording: Recording, operands: Sequence[str], target: str,
            eqn: Equation | None, spare: str | None) -> None:
    """The numpy calls of an op, one a line. spare: whose memory the only one may write to."""
    at: dict[int, str] = dict(enumerate(operands))
    for step in recording.steps:
        out = at[step.result] = target if step.result == recording.result else w.fresh()
        args = [at[v] if type(v) is int else w.name(constant(v)) for v in step.operands]
        if spare is not None:
            args.append(f"out={spare}" if step.function in BY_NAME else spare)
        w.line(f"{out} = {_expression(w, step, args, recording)}", eqn)
    if recording.result < recording.operands:
        w.line(f"{target} = {at[recording.result]}", eqn)


def _expression(w: _Writer, step: Any, args: Sequence[str], recording: Recording) -> str:
    shape, dtype = recording.values[step.result]
    listed = ", ".join(args)
    if step.kind == CALL:
        return f"{w.name(step.function, 'f')}({listed})"
    if step.kind == REDUCE:
        axes = step.axes if len(step.axes) > 1 else step.axes[0]
        return f"{w.name(step.function, 'f')}.reduce({listed}, {axes}, {w.name(dtype)})"
    if step.kind == CAST:
        return f"{listed}.astype({w.name(dtype)})"
    if step.kind == RESHAPE:
        return f"{listed}.reshape({shape})"
    if step.kind == REPEAT:
        return f"{w.name(repeated, 'f')}({listed}, {shape})"
    if step.kind == TRANSPOSE:
        return f"{listed}.transpose({step.function})"
    if step.kind == INDEX:
        return f"{listed}[{w.name(step.function)}]"
    return f"{w.name(np.where, 'f')}({listed})"
