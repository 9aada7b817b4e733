"""Names for parts of a profile. None is recorded here, so they mark nothing; what would record one
raises NotImplementedError.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from ...ir.diagnostics.diagnostic import fail

__all__ = ["StepTraceAnnotation", "TraceAnnotation", "annotate_function", "start_server",
           "start_trace", "stop_trace", "trace"]
_F = TypeVar("_F", bound=Callable[..., Any])


class TraceAnnotation(contextlib.ContextDecorator):
    """A part of a profile: a `with` block, or a function that this decorates."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name = name

    def __enter__(self) -> TraceAnnotation:
        return self

    def __exit__(self, *error: Any) -> None:
        return None


class StepTraceAnnotation(TraceAnnotation):
    """A step of training in a profile."""


def annotate_function(func: _F, name: str | None = None, **kwargs: Any) -> _F:
    """The function, as a part of a profile."""
    return func


def _refuse(*_: Any, **__: Any) -> NoReturn:
    fail(NotImplementedError, "there is no hardware to profile: devices are simulated",
         help="`shardtrace.explain(f)(*args)` tells what a program would cost, collective by "
              "collective, and `shardtrace run --time-passes` where the simulation spends time")


start_trace = stop_trace = start_server = trace = _refuse
