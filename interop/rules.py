"""Shared by the importers: what a rule is, and the location at which an operation is traced."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..ir.settings.context import STATE
from ..ir.source.location import Location

Rule = Callable[..., Any]        # (replay, operation, operands) -> results


@contextlib.contextmanager
def traced_at(place: Location | None) -> Iterator[None]:
    """Equations traced in this block get this location."""
    interpreter: Any = STATE.interpreter
    if not hasattr(interpreter, "location"):
        yield
        return
    before, interpreter.location = interpreter.location, place
    try:
        yield
    finally:
        interpreter.location = before
