"""Traced values that the rules of custom_jvp and custom_vjp functions close over.

A rule runs when the function around it has been traced to its end. The tracers that it closes over
are dead by then, so their values are operands of the call like any other, through every
transformation; while the rule runs, `standing_for` maps these tracers to what the operands have
become.
"""
from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import Any

from ....ir.program import Program, Var
from ....ir.settings.context import STATE
from ...staging.builder import Builder
from ...staging.tracer import Tracer

PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType)
LIMIT = 2000            # objects that are looked at


def closed_values(*rules: Any) -> list[Tracer]:
    """The tracers that functions can reach by what they close over, each once.

    Those of traces that go on, and those that stand for a value now; others are leaked.
    """
    interpreter = STATE.interpreter
    if not isinstance(interpreter, Builder):
        return []
    found: dict[Any, Tracer] = {}
    waiting: list[Any] = list(rules)
    seen: set[int] = set()
    while waiting and len(seen) < LIMIT:
        x = waiting.pop()
        if isinstance(x, Tracer):
            if x.variable not in found and (
                    x.builder is interpreter or interpreter._encloses(x.builder)
                    or x.variable in STATE.stand_ins):
                found[x.variable] = x
        elif not isinstance(x, PLAIN) and id(x) not in seen:
            seen.add(id(x))
            waiting += _inside(x)
    return list(found.values())


def _inside(x: Any) -> Sequence[Any]:
    """What an object holds, if it is one of a user's that may hold traced values."""
    if isinstance(x, types.FunctionType):
        held = [*(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values()]
        for cell in x.__closure__ or ():
            try:
                held.append(cell.cell_contents)
            except ValueError:              # the name is not bound yet
                continue
        return held
    if isinstance(x, types.MethodType):
        return x.__self__, x.__func__
    if isinstance(x, functools.partial):
        return [x.func, *x.args, *x.keywords.values()]
    if isinstance(x, dict):
        return list(x.values())
    if isinstance(x, (list, tuple, set, frozenset)):
        return list(x)
    held = list(getattr(x, "__dict__", {}).values())
    return held + [getattr(x, n) for n in getattr(type(x), "__slots__", ()) if hasattr(x, n)]


def with_unused(program: Program, captured: int, values: Sequence[Tracer]) -> Program:
    """The program with further parameters, which it does not use, after the captured ones."""
    if not values:
        return program
    invars = program.invars
    return program.replace(
        invars=[*invars[:captured], *(Var(x.aval) for x in values), *invars[captured:]],
        arg_names=())


class standing_for:
    """Within the block, tracers stand in for these values; None: for nothing."""

    __slots__ = ("saved", "stand_ins")

    def __init__(self, tracers: Sequence[Tracer], values: Sequence[Any]) -> None:
        self.stand_ins = {t.variable: x for t, x in zip(tracers, values, strict=True)}

    def __enter__(self) -> None:
        self.saved = STATE.stand_ins
        if self.stand_ins:
            kept = {v: x for v, x in {**self.saved, **self.stand_ins}.items() if x is not None}
            STATE.stand_ins = kept

    def __exit__(self, *exc: object) -> None:
        STATE.stand_ins = self.saved


def stood_for(values: Sequence[Any]) -> list[Any]:
    """The values that stand-ins returned by a rule were made for."""
    stand_ins = STATE.stand_ins
    if not stand_ins:
        return list(values)
    return [stand_ins.get(x.variable, x) if isinstance(x, Tracer) else x for x in values]
