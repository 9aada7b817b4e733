"""Recording a function that is to be differentiated, and the values where Python asks for them.

Inside of jit the function is staged as any other. Outside, its arguments have values: equations are
recorded first and computed when a value is wanted (`if x > 0`, `float(x)`, printing), so Python
control flow works and nothing is computed twice. Equations are computed in the interpreter that
surrounds the recording, which may itself be a recording: derivatives nest.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.meshes.mesh import AbstractMesh
from ...ir.op import Op
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.settings.context import STATE, interpreter_context
from ...ir.support.collector import collector_paused
from ...ir.types import ArrayType
from ...ir.values.typeof import canonical_value
from ..staging.builder import Builder
from ..staging.constants import note_mesh
from ..staging.memoized import BUILDERS
from ..staging.nesting import refuse
from ..staging.tracer import Tracer
from .replay import Scalar, equation_context, operand, process


class Recording(Builder):
    """A builder that can compute the equations it has recorded.

    outer: the interpreter around it. concrete: whether values can be had at all, which they cannot
    within jit. values: of variables, as far as they are known. word: for `repr`.
    """

    __slots__ = ("_producer", "_seen", "concrete", "outer", "values", "word")
    for_derivative = True

    def __init__(self, name: str, outer: Any, word: str = "GradTracer") -> None:
        super().__init__(name, outer)
        self.outer, self.word = outer, word
        self.concrete: bool = outer is None or getattr(outer, "concrete", False)
        self.values: dict[Var, Any] = {}
        self._producer: dict[Var, int] = {}
        self._seen = 0

    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Tracer]:
        """Record an equation. Debug callbacks and checks act at once where values can be had."""
        results = super().process(op, operands, params)
        if op.effect in ("debug", "check") and self.concrete:
            eqn = self.eqns.pop()
            if all(isinstance(a, Literal) or a in self.known() or self._compute(a)
                   for a in eqn.invars):
                self._run((eqn,))
            else:
                self.eqns.append(eqn)
        return results

    def known(self) -> dict[Var, Any]:
        """Values of variables without computing any: arguments, captured values, constants."""
        for v, x in (*self.consts, *zip(self.captured_vars, self.captured, strict=True)):
            # Of numpy's 64 bits a program has 32, unless they are enabled.
            self.values[v] = canonical_value(x) if isinstance(x, np.ndarray) else x
        return self.values

    def value(self, var: Atom) -> Any:
        """The value of a variable, computed on demand; None where it has none."""
        if not self.concrete:
            return None
        if isinstance(var, Literal):
            return Scalar(var)
        if var not in self.values and not self._compute(var):
            return None
        value = self.values[var]
        return value._known() if isinstance(value, Tracer) else value

    def outside(self, x: Tracer) -> Any:
        """The value of a tracer that no argument enters, in the surrounding interpreter.

        The rules of custom derivatives run when the recording has ended: a value that does not
        depend on what is differentiated is to them what it would be outside.
        """
        var = x.variable
        if isinstance(var, Literal):
            return Scalar(var)
        known = STATE.stand_ins.get(var)
        if known is not None:
            return known
        given = dict(zip(self.captured_vars, self.captured, strict=True)) | dict(self.consts)
        needed = self._needed(var, given)
        if needed is None:
            return super().outside(x)
        self.values.update(given)
        self._run([eqn for eqn in needed if eqn.outvars[0] not in self.values])
        return self.values[var]

    def _compute(self, var: Var) -> bool:
        needed = self._needed(var, self.known())
        if needed is None:
            return False
        self._run(needed)
        return True

    def _needed(self, var: Var, given: Mapping[Var, Any]) -> list[Equation] | None:
        """The equations that give a variable, out of those that are given; None if none do."""
        for i in range(self._seen, len(self.eqns)):
            for v in self.eqns[i].outvars:
                self._producer[v] = i
        self._seen = len(self.eqns)
        needed: set[int] = set()
        waiting = [var]
        while waiting:
            v = waiting.pop()
            if v in given:
                continue
            index = self._producer.get(v)
            if index is None:
                return None
            if index not in needed:
                needed.add(index)
                waiting += [a for a in self.eqns[index].invars if isinstance(a, Var)]
        return [self.eqns[index] for index in sorted(needed)]

    def _run(self, eqns: Sequence[Equation]) -> None:
        """Compute equations in the surrounding interpreter; their operands have values."""
        values = self.values
        saved = STATE.abstract_mesh, STATE.interpreter
        STATE.interpreter = self.outer
        try:
            for eqn in eqns:
                STATE.abstract_mesh = equation_context(eqn, saved[0])
                results = process(eqn.op, [operand(a, values) for a in eqn.invars], eqn.params)
                values.update(zip(eqn.outvars, results, strict=True))
        finally:
            STATE.abstract_mesh, STATE.interpreter = saved

    def shown(self, tracer: Tracer) -> str:
        if not self.concrete:
            return f"{self.word}(primal={tracer.aval}, typeof(tangent)={tracer.aval})"
        value = self.value(tracer.variable)
        text = "?" if value is None else str(value)
        return (f"{self.word}(primal={text}, "
                f"typeof(tangent)={tracer.aval.str_short(short_dtypes=True)})")


BUILDERS.add(Recording)      # what it does besides recording concerns debug callbacks alone


def record(f: Callable[..., Sequence[Any]], types: Sequence[ArrayType], *, name: str,
           values: Sequence[Any] | None = None, word: str = "GradTracer",
           mesh: AbstractMesh | None = None) -> tuple[Program, Recording]:
    """The program of `f(*tracers)`, which returns a flat sequence of values, and its recording.

    types: of the arguments. values: theirs, None (one, or all) where unknown.
    The program's parameters are the captured values of enclosing traces, then the arguments.
    """
    recording = Recording(name, STATE.interpreter, word)
    context = STATE.abstract_mesh if mesh is None else mesh
    with interpreter_context(recording), collector_paused():
        args = [recording.argument(t) for t in types]
        if values is not None:
            for tracer, x in zip(args, values, strict=True):
                if x is not None:
                    recording.values[tracer.variable] = x
                    note_mesh(recording, x)
        try:
            outvars = [recording.atom(r) for r in f(*args)]
        except RecursionError as error:
            refuse(error, recording)
        finally:
            recording.watch.end()
    if recording.parent is not None:
        for m in recording.meshes:
            if m not in recording.parent.meshes:
                recording.parent.meshes.append(m)
    if not context.axis_names:
        context = next((v.aval.mesh for v in recording.args if v.aval.mesh.axis_names), context)
    program = recording.finish(outvars, context)
    return program, recording
