"""Derivative rules of a library's own primitives, and symbolic zeros."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.program import Literal
from ....tracer.autodiff.recording import Recording
from ....tracer.jnp import zeros
from ....tracer.staging.tracer import Tracer

__all__ = [
    "JVPTracer",
    "UndefinedPrimal",
    "Zero",
    "deflinear",
    "deflinear2",
    "instantiate_zeros",
    "is_undefined_primal",
    "primitive_jvps",
    "primitive_transposes",
]
primitive_jvps: dict[Any, Callable[..., Any]] = {}
primitive_transposes: dict[Any, Callable[..., Any]] = {}


class Zero:
    """A tangent or cotangent that is zero."""

    def __init__(self, aval: Any) -> None:
        self.aval = aval


class UndefinedPrimal:
    """An operand that a transposed operation is linear in."""

    def __init__(self, aval: Any) -> None:
        self.aval = aval


class _MovesWithArguments(type):
    def __instancecheck__(cls, x: Any) -> bool:
        """Is it a value that `jax.jvp` differentiates, and that depends on its arguments?"""
        builder = x.builder if type(x) is Tracer else None
        if not isinstance(builder, Recording) or isinstance(x.variable, Literal):
            return False
        given = dict(zip(builder.captured_vars, builder.captured, strict=True))
        return builder._needed(x.variable, {**given, **dict(builder.consts)}) is None


class JVPTracer(metaclass=_MovesWithArguments):
    """A value with its tangent. Derivatives here are taken of programs: what is one is told by
    looking at the program so far.
    """


class Trace:
    """Which trace a value is of: `x._trace`. There are no others by the name of its `main`."""

    def __init__(self, main: Any) -> None:
        self.main = main


Tracer._trace = property(lambda self: Trace(self.builder))      # type: ignore[attr-defined]


def is_undefined_primal(x: Any) -> bool:
    """Is it an operand to transpose for?"""
    return type(x) is UndefinedPrimal


def instantiate_zeros(x: Any) -> Any:
    """The zeros that a `Zero` stands for; anything else as it is."""
    return zeros(x.aval.shape, x.aval.dtype) if type(x) is Zero else x


def deflinear2(primitive: Any, transpose_rule: Callable[..., Any]) -> None:
    """Say that a primitive is linear, and how it is transposed."""
    primitive_transposes[primitive] = transpose_rule


deflinear = deflinear2
