"""The abstract array: the base of the runtime's arrays and of tracers.

`isinstance(x, Array)` holds for both, as in JAX. The base has no behaviour of its own: operators
and methods (`x + y`, `x.sum()`, `x.at[i].set(v)`) are written once, in the tracer's numpy layer,
and installed here with `install_methods`, so that both kinds share them.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .types import ArrayType


class Array:
    """An array value: concrete (sharded over devices) or traced. `aval` is its sharded type."""

    __slots__ = ("__weakref__",)
    __array_priority__ = 100
    aval: ArrayType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        return self.aval.size

    @property
    def weak_type(self) -> bool:
        return self.aval.weak_type

    @property
    def itemsize(self) -> int:
        return self.aval.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.aval.nbytes


def install_methods(methods: Mapping[str, Any]) -> None:
    """Give every array these operators and methods."""
    for name, method in methods.items():
        setattr(Array, name, method)
