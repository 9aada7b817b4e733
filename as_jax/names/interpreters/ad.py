"""Rules for derivatives, and the zeros in them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....tracer.jnp import zeros

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


class JVPTracer:
    """A value with its tangent. Derivatives here are taken of programs, so no value is one."""


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
