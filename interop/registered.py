"""Implementations that users register for operations unknown to the importers."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

REGISTERED: dict[str, Callable[..., Any]] = {}
"""By the name of a primitive of JAX's, of an operation of StableHLO, or of a custom call."""


def register(primitive: Any, function: Callable[..., Any] | None = None) -> Any:
    """Say how a primitive of JAX's, or an operation of StableHLO, is computed here; also as a
    decorator.

    primitive: a primitive, or its name; or the name of an operation, or of a custom call's target.
    function: of the operands and, by keyword, of the params or attributes; it gives the result, or
    the list of results where there are several.

    >>> from shardtrace import interop
    >>> @interop.register("my_square")
    ... def _(x):
    ...     return x * x
    """
    name = primitive if isinstance(primitive, str) else primitive.name

    def enter(f: Callable[..., Any]) -> Callable[..., Any]:
        REGISTERED[name] = f
        return f
    return enter if function is None else enter(function)
