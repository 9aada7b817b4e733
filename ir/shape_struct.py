"""ShapeDtypeStruct: an array's type given by hand, for an array that need not exist."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .context import STATE, x64_enabled
from .dtypes import ExtendedDType, canonicalize_dtype
from .sharding import NamedSharding
from .spec import PartitionSpec
from .types import ArrayType, array_type


class ShapeDtypeStruct:
    """The shape, dtype and sharding of an array that need not exist.

    Stands for an argument in `trace`, `lower` and `eval_shape`. sharding: a NamedSharding, or a
    PartitionSpec under a context mesh.
    """

    __slots__ = ("_sharding", "dtype", "shape", "weak_type")

    def __init__(self, shape: Sequence[int], dtype: Any, *, sharding: Any = None,
                 weak_type: bool = False, vma: Any = None) -> None:
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        self.shape = tuple(int(n) for n in shape)
        self.dtype = _dtype(dtype)
        self.weak_type = weak_type
        if isinstance(sharding, PartitionSpec) and len(sharding.entries) > len(self.shape):
            raise ValueError(f"PartitionSpec {sharding} is only valid for values of rank at least "
                             f"{len(sharding.entries)}, but was applied to a value of rank "
                             f"{len(self.shape)}.")
        self._sharding = sharding

    @property
    def sharding(self) -> Any:
        if isinstance(self._sharding, PartitionSpec):
            if not STATE.abstract_mesh.axis_names:
                raise TypeError("When specifying PartitionSpec to `ShapeDtypeStruct`, the context "
                                "mesh cannot be empty. Please use `jax.set_mesh` to set the mesh "
                                "context.")
            return NamedSharding(STATE.abstract_mesh, self._sharding)
        return self._sharding

    @property
    def aval(self) -> ArrayType:
        sharding = self.sharding
        dtype = self.dtype
        if isinstance(dtype, np.dtype):
            dtype = canonicalize_dtype(dtype, x64_enabled())
        return array_type(self.shape, dtype, self.weak_type,
                          sharding if isinstance(sharding, NamedSharding) else None)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def update(self, **kwargs: Any) -> ShapeDtypeStruct:
        fields = {"shape": self.shape, "dtype": self.dtype, "sharding": self._sharding,
                  "weak_type": self.weak_type}
        fields.update(kwargs)
        return ShapeDtypeStruct(fields.pop("shape"), fields.pop("dtype"), **fields)

    def __repr__(self) -> str:
        sharding = f", sharding={self._sharding}" if self._sharding is not None else ""
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding}{weak})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (
            (self.shape, self.dtype, self._sharding, self.weak_type)
            == (other.shape, other.dtype, other._sharding, other.weak_type))

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self._sharding, self.weak_type))


def _dtype(dtype: Any) -> Any:
    for candidate in (dtype, getattr(dtype, "dtype", None)):    # scalar types such as jnp.float32
        if isinstance(candidate, (np.dtype, ExtendedDType)):
            return candidate
    return np.dtype(dtype)


def struct_of(aval: ArrayType) -> ShapeDtypeStruct:
    """The struct of a type; its sharding is kept where Explicit axes make it part of the type."""
    sharding = aval.sharding if aval.mesh.explicit_axes else None
    return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type)
