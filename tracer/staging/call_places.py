"""Equations located at the call of the helper that requests them (ir/source/call_location.py)."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ...ir.op import Op
from ...ir.settings.context import STATE
from ...ir.source.call_location import capture_call
from ...ir.source.location import Location, capture


@contextlib.contextmanager
def placed(find: Callable[[], Location] = capture) -> Iterator[None]:
    """Equations made here get the location that `find` returns, by default the user's innermost
    frame.
    """
    interpreter: Any = STATE.interpreter
    if getattr(interpreter, "location", _NONE) is not None:
        yield                               # eager, or a transformation that has its own place
        return
    interpreter.watch.place()
    interpreter.location = find()
    try:
        yield
    finally:
        interpreter.location = None


_NONE = object()


def bind_where_called(op: Op, x: Any, **params: Any) -> Any:
    """`op.bind(x, **params)`, placed where the user asks for a layout rather than in a helper."""
    interpreter: Any = STATE.interpreter
    if getattr(interpreter, "location", _NONE) is not None:
        return op.bind(x, **params)         # as in `placed`
    interpreter.watch.place()
    interpreter.location = place = capture_call()
    if place.known:
        place.callers = interpreter.watch.calls
    try:
        return op.bind(x, **params)
    finally:
        interpreter.location = None
