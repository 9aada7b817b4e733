"""Base classes for the types and primitives that a library defines itself.

Libraries may subclass them; running one raises NotImplementedError.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.diagnostics.diagnostic import fail
from ....ir.types import ArrayType
from ..interpreters.ad import Zero, instantiate_zeros, is_undefined_primal

__all__ = ["AbstractValue", "HiPrimitive", "HiType", "MutableHiType", "Zero", "aval_method",
           "aval_property", "control_flow_allowed_effects", "instantiate_zeros",
           "is_undefined_primal", "register_hitype"]
AbstractValue = ArrayType


class _EffectTypes:
    """A set of classes of effects."""

    def __init__(self) -> None:
        self.types: set[type] = set()

    def add_type(self, effect: type) -> None:
        """Add a class."""
        self.types.add(effect)


control_flow_allowed_effects = _EffectTypes()
_TYPES: dict[type, Callable[..., Any]] = {}


class HiType:
    """The base of types."""


class MutableHiType(HiType):
    """The base of types of values that change."""


class HiPrimitive:
    """The base of primitives."""

    multiple_results = False

    def __init__(self, name: str) -> None:
        self.name = name

    def bind(self, *args: Any, **params: Any) -> Any:
        """Refused."""
        fail(NotImplementedError, f"the primitive `{self.name}` is one of hijax, which shardtrace "
                                  "does not have",
             help="make it of `jax.numpy` functions under `custom_vjp`, or an op by `defop`")


class aval_method:
    """A method that values get from their type."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun


class aval_property:
    """A property that values get from their type."""

    def __init__(self, fget: Callable[..., Any]) -> None:
        self.fget = fget


def register_hitype(cls: type, type_of: Callable[..., Any]) -> None:
    """Say which type the instances of a class have."""
    _TYPES[cls] = type_of
