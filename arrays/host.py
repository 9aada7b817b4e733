"""Data and types of arrays from what users pass: Python numbers, numpy arrays and array-likes.

Without x64, 64-bit values become 32-bit ones. Python numbers give weak types. A numpy array is
copied unless nobody can change it.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.diagnostics.errors import InvalidInputException
from ..ir.dtypes import canonicalize_dtype, check_valid_dtype
from ..ir.kernels.device_dimensions import copied
from ..ir.meshes.memory import space_of_kind
from ..ir.settings.context import x64_enabled
from ..ir.shardings.normalized import normalized_sharding
from ..ir.shardings.sharding import NamedSharding, Sharding
from ..ir.support.caches import cached
from ..ir.types import ArrayType, array_type
from ..ir.values.array import Array
from ..ir.values.typeof import refuse_masked

PYTHON_NUMBERS = (bool, int, float, complex)


@cached(4096, "shardings of arrays as types have them")
def _type_sharding(sharding: NamedSharding, ndim: int) -> NamedSharding:
    return normalized_sharding(sharding, ndim)


def aval_for(shape: tuple[int, ...], dtype: Any, weak_type: bool, sharding: Sharding
             ) -> ArrayType:
    """The type of an array with this sharding: over its abstract mesh, Explicit axes only.

    Raises ValueError where an Explicit axis does not divide its dimension.
    """
    space = space_of_kind(sharding.memory_kind)
    if not isinstance(sharding, NamedSharding):
        return array_type(shape, dtype, weak_type, memory_space=space)
    return array_type(shape, dtype, weak_type, _type_sharding(sharding, len(shape)),
                      memory_space=space)


def host_array(x: Any, *, copy: bool = True) -> tuple[np.ndarray, bool]:
    """numpy data of a number or array-like in a dtype that arrays have, and the weak flag.

    copy: whether the result must not change when the caller changes `x` later. Raises TypeError
    for what is no array, and OverflowError for Python integers that are too large.
    """
    x64 = x64_enabled()
    if isinstance(x, Array):
        return np.asarray(x), x.aval.weak_type
    if isinstance(x, np.ndarray):
        refuse_masked(x)
        dtype = canonicalize_dtype(x.dtype, x64)
        check_valid_dtype(dtype)
        if dtype != x.dtype:
            return x.astype(dtype), False
        return (copied(x) if copy and _may_change(x) else np.asarray(x)), False
    if isinstance(x, np.generic):
        dtype = canonicalize_dtype(x.dtype, x64)
        check_valid_dtype(dtype)
        return np.asarray(x).astype(dtype), False
    if isinstance(x, PYTHON_NUMBERS):
        kind = next(k for k in PYTHON_NUMBERS if isinstance(x, k))
        dtype = canonicalize_dtype(kind, x64)
        limits = np.iinfo(dtype) if kind is int else None
        if isinstance(x, int) and limits is not None and not limits.min <= x <= limits.max:
            raise OverflowError(f"Python int {x} too large to convert to {dtype.name}")
        return np.asarray(x, dtype), not isinstance(x, bool)
    if hasattr(x, "__array__") and not isinstance(x, type):
        return host_array(np.asarray(x), copy=copy)
    raise InvalidInputException(f"Argument '{x}' of type {type(x)} is not a valid JAX type.")


def _may_change(x: np.ndarray) -> bool:
    """Is the memory of `x` writable through it or an array that it is a view of?"""
    base: Any = x
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return base is not None and not isinstance(base, bytes)


def python_number(x: Any) -> Any:
    """The Python number for a numpy scalar whose dtype numpy itself does not convert to one."""
    if x.dtype.kind == "c":
        return complex(x)
    return int(x) if "int" in x.dtype.name else float(x)
