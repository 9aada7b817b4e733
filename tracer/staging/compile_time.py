"""`ensure_compile_time_eval`: ops on known values run at once, also within a trace."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from ...ir.op import DEFAULT_INTERPRETER, Op
from ...ir.settings.context import STATE, interpreter_context
from .tracer import Tracer


class _KnownFirst:
    """Computes what can be, and leaves ops on traced values to the trace around."""

    __slots__ = ("outer",)

    def __init__(self, outer: Any) -> None:
        self.outer = outer

    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        traced = any(isinstance(x, Tracer) for x in operands)
        with interpreter_context(self.outer if traced else None):
            return (self.outer if traced else DEFAULT_INTERPRETER[0]).process(op, operands, params)


def runs_eagerly(leaves: Sequence[Any]) -> bool:
    """Whether nothing is traced by a function of these values: it can be called as it is."""
    interpreter = STATE.interpreter
    return interpreter is None or type(interpreter) is _KnownFirst and not any(
        [isinstance(x, Tracer) for x in leaves])


@contextlib.contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """A context manager in which ops on known values run at once, also within a trace.

    >>> import shardtrace as st, shardtrace.numpy as jnp
    >>> @st.jit
    ... def f(x):
    ...     with st.ensure_compile_time_eval():
    ...         count = int(jnp.arange(4).sum())
    ...     return x * count
    >>> f(2)
    Array(12, dtype=int32, weak_type=True)
    """
    outer = STATE.interpreter
    with interpreter_context(None if outer is None else _KnownFirst(outer)):
        yield
