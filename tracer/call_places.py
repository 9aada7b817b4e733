"""Equations whose place is the call of the helper that asks for them (ir/call_location.py)."""
from __future__ import annotations

from typing import Any

from ..ir.call_location import capture_call
from ..ir.context import STATE
from ..ir.op import Op


def bind_where_called(op: Op, x: Any, **params: Any) -> Any:
    """`op.bind(x, **params)`, placed where the user asks for a layout rather than in his helper."""
    interpreter: Any = STATE.interpreter
    if getattr(interpreter, "location", op) is not None:
        return op.bind(x, **params)         # eager, or a transformation that has its own place
    interpreter.location = capture_call()
    try:
        return op.bind(x, **params)
    finally:
        interpreter.location = None
