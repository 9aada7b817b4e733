"""Runs the user's function again with a change in its source, to show that the change helps.

A function under trace runs only to record its equations, so it may run again, as it does under any
transformation. The file is compiled with the change, the function is extracted from it with the
names and closure that it has, and traced on the arguments of the original call. Functions that run
eagerly, functions that have assigned to their parameters, and functions without available source
are not run again.
"""
from __future__ import annotations

import dis
import inspect
import sys
import types
from collections.abc import Mapping
from typing import Any

from ...ir.diagnostics.diagnostic import Fix
from ...ir.settings.context import STATE
from ...ir.source.location import PACKAGE
from ...ir.support.caches import cached
from ...ir.support.immutable import replace
from ..staging.builder import Builder
from ..staging.staging import trace_to_program
from .user_code import Place

_MOST = 20_000        # equations of one run
_INNER = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_BINDING = (f"{PACKAGE}.tracer.shard_map", f"{PACKAGE}.tracer.batching")     # axes, for a body
_STORES = ("STORE_FAST", "STORE_DEREF", "DELETE_FAST", "DELETE_DEREF")
_NEVER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class _RerunFinished(BaseException):
    """Ends a run that takes too long."""


class _Count:
    """Observes a trace, and ends one that is too long."""

    def __init__(self) -> None:
        self.left = _MOST

    def __call__(self, _: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise _RerunFinished

    def begin(self, *_: Any) -> None:
        """A trace inside starts; its equations count too."""

    end = begin


class Rerun:
    """Runs of the function at `place`. names: what the imports of changes bring."""

    def __init__(self, place: Place, names: Mapping[str, Any]) -> None:
        self.place, self.names = place, names
        self.frame, self.possible = place.frame, False
        root = _compiled(place.file, "\n".join(place.lines))
        for frame in [] if place.is_eager else _around(place.frame):
            flags = frame.f_code.co_flags
            if (flags & inspect.CO_OPTIMIZED and not flags & _NEVER
                    and frame.f_code.co_name not in _INNER and _keeps_its_arguments(frame.f_code)
                    and _path_to(frame.f_code, root) is not None):
                self.frame, self.possible = frame, True

    def runs(self, fix: Fix, last: int) -> bool | None:
        """Does the function run with the change made? None if it cannot be run again, or goes
        wrong at another place, after line `last` (of the changed file).
        """
        if not self.possible:
            return None
        code = self._changed(fix, self.frame.f_code)
        if code is None or not set(code.co_freevars) <= set(self.frame.f_locals):
            return False
        scope = self._scope()
        found = self.frame.f_locals
        closure = tuple([types.CellType(found[name]) for name in code.co_freevars])
        function = types.FunctionType(code, scope, code.co_name, None, closure)
        args, kwargs = _arguments(self.frame)
        try:
            traced(lambda: function(*args, **kwargs))
            return True
        except (Exception, _RerunFinished) as error:
            if isinstance(error, _RerunFinished):
                return None
            trace, line = error.__traceback__, 0
            while trace is not None:
                if trace.tb_frame.f_code.co_filename == self.place.file:
                    line = trace.tb_lineno
                trace = trace.tb_next
            return None if line > last else False

    def with_change(self, fix: Fix, function: types.FunctionType) -> types.FunctionType | None:
        """A function of the file as it is with the change made."""
        code = self._changed(fix, function.__code__)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if code is None or not set(code.co_freevars) <= set(cells):
            return None
        made = types.FunctionType(code, self._scope(), code.co_name, function.__defaults__,
                                  tuple([cells[name] for name in code.co_freevars]))
        made.__kwdefaults__ = function.__kwdefaults__
        return made

    def _scope(self) -> dict[str, Any]:
        return {**self.frame.f_globals, **self.names, "print": lambda *_, **__: None}

    def _changed(self, fix: Fix, code: types.CodeType) -> types.CodeType | None:
        source = "\n".join(self.place.lines)
        path = _path_to(code, _compiled(self.place.file, source))
        new = _compiled(self.place.file, replace(fix, imports=()).apply(source))
        for i in path or ():
            inner = _nested_code(new) if new is not None else []
            new = inner[i] if i < len(inner) else None
        return new if path is not None else None


def traced(run: Any) -> Any:
    """What `run` gives, its equations recorded apart, and not more of them than is quick."""
    outer, observers = STATE.interpreter, STATE.on_equation
    STATE.interpreter = Builder(getattr(outer, "name", ""), outer)
    STATE.on_equation = [_Count()]
    try:
        return run()
    finally:
        STATE.interpreter, STATE.on_equation = outer, observers


def _around(inner: types.FrameType) -> list[types.FrameType]:
    """The frames, from a function's outwards, of the functions in which it is written, as far as
    they belong to the trace in progress and have its axes."""
    found: list[types.FrameType] = []
    frame: types.FrameType | None = sys._getframe(1)
    builder: Any = STATE.interpreter
    while frame is not None and isinstance(builder, Builder):
        if frame.f_code is trace_to_program.__code__:
            builder = builder.parent
        elif frame.f_globals.get("__name__", "").startswith(_BINDING):
            break
        elif frame is inner or found and frame.f_code.co_filename == inner.f_code.co_filename and (
                _path_to(found[-1].f_code, frame.f_code) is not None):
            found.append(frame)
        frame = frame.f_back
    return found


def _keeps_its_arguments(code: types.CodeType) -> bool:
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS
                                                             ) + bool(
        code.co_flags & inspect.CO_VARKEYWORDS)
    parameters = set(code.co_varnames[:count])
    return not any(i.opname in _STORES and i.argval in parameters
                   for i in dis.get_instructions(code))


def _arguments(frame: types.FrameType) -> tuple[list[Any], dict[str, Any]]:
    info = inspect.getargs(frame.f_code)
    found = frame.f_locals
    count = frame.f_code.co_argcount
    args = [found[name] for name in info.args[:count]]
    args += found[info.varargs] if info.varargs else ()
    kwargs = {name: found[name] for name in info.args[count:]}
    kwargs.update(found[info.varkw] if info.varkw else {})
    return args, kwargs


@cached(4)
def _compiled(file: str, source: str) -> types.CodeType | None:
    """The code of a file with this text."""
    try:
        return compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None


def _nested_code(code: types.CodeType) -> list[types.CodeType]:
    return [c for c in code.co_consts if isinstance(c, types.CodeType)]


def _path_to(code: types.CodeType, root: types.CodeType | None) -> list[int] | None:
    """Where in the code of a file a function's is, by positions among those inside; None if it is
    not."""
    if root is None:
        return None
    if root.co_name == code.co_name and root.co_firstlineno == code.co_firstlineno and (
            list(root.co_positions()) == list(code.co_positions())):
        return []
    for i, inner in enumerate(_nested_code(root)):
        path = _path_to(code, inner)
        if path is not None:
            return [i, *path]
    return None
