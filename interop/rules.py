"""Shared by the importers: tables of rules, and the location at which an operation is traced."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..ir.settings.context import STATE
from ..ir.source.location import Location

Rule = Callable[..., Any]


class Rules(dict[str, Rule]):
    """Rules by the name of an operation: (replay, operation, operands) -> results. Called with
    names it is a decorator that registers a rule under these.
    """

    def __call__(self, *names: str) -> Callable[[Rule], Rule]:
        def enter(f: Rule) -> Rule:
            for name in names:
                self[name] = f
            return f
        return enter


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
