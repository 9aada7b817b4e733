"""Names of `jax.extend.core` for programs that define tracers and primitives of their own."""
from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from .....ir.diagnostics.diagnostic import fail
from .....ir.program import Var
from .....ir.settings.context import STATE
from .....ir.types import ArrayType
from .....ir.values.typeof import typeof
from .....tracer.staging.tracer import Tracer
from ...interpreters import ad
from .primitive import Primitive

__all__ = [
    "DropVar",
    "Effect",
    "Effects",
    "Primitive",
    "find_top_trace",
    "get_opaque_trace_state",
    "mapped_aval",
    "no_effects",
    "set_current_trace",
    "take_current_trace",
    "unmapped_aval",
    "valid_jaxtype",
]


class Effect:
    """What an operation does besides giving results."""


Effects = frozenset[Effect]
no_effects: Effects = frozenset()


class DropVar(Var):
    """A result that nothing reads. Programs here have variables for these, too."""


class _TraceState:
    """Which trace is at work; equal to another one of the same trace."""

    def __init__(self, trace: Any) -> None:
        self.trace = None if trace is None else weakref.ref(trace)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TraceState) and self.trace == other.trace

    def __hash__(self) -> int:
        return hash(self.trace)


def get_opaque_trace_state(convention: str = "flax") -> _TraceState:
    """Something to compare: are two moments in the same trace?"""
    trace = STATE.interpreter
    return _TraceState(getattr(trace, "outer", trace))


def find_top_trace(xs: Iterable[Any]) -> ad.Trace | None:
    """The innermost trace that values are of; None outside of any."""
    builders = [x.builder for x in xs if isinstance(x, Tracer)]
    return ad.Trace(max(builders, key=lambda b: b.depth)) if builders else None


def mapped_aval(size: int, axis: int | None, aval: ArrayType) -> ArrayType:
    """The type of one element along a mapped dimension."""
    if axis is None:
        return aval
    assert aval.shape[axis] == size
    return ArrayType((*aval.shape[:axis], *aval.shape[axis + 1:]), aval.dtype,
                     weak_type=aval.weak_type)


def unmapped_aval(size: int, axis: int | None, aval: ArrayType) -> ArrayType:
    """The type of values whose elements along a new dimension have the type `aval`."""
    if axis is None:
        return aval
    return ArrayType((*aval.shape[:axis], size, *aval.shape[axis:]), aval.dtype,
                     weak_type=aval.weak_type)


def valid_jaxtype(x: Any) -> bool:
    """Can `x` be an array?"""
    try:
        typeof(x)
    except TypeError:
        return False
    return True


def _no_traces(*_: Any) -> None:
    fail(NotImplementedError, "traces of a library's own are not a part of shardtrace",
         help="look at the program instead: jax.make_jaxpr(f)(*args)")


take_current_trace = set_current_trace = _no_traces
