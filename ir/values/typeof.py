"""The type of a value: of arrays, of numpy arrays and of Python scalars."""
from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..dtypes import ALL_DTYPES, canonicalize_dtype, dtype_of
from ..dtypes.table import VALID_DTYPES
from ..settings.context import x64_enabled
from ..support.caches import module_table
from ..types import ArrayType, array_type
from .array import Array


def typeof(x: Any) -> ArrayType:
    """The sharded type of an array, tracer, numpy array or Python scalar.

    Raises TypeError for what is no array.

    Sharding
      Auto: is not part of the type; `x.sharding` of a concrete array tells it.
      Explicit: is shown beside each dimension: `float32[16@x,4]`.
      Manual: shapes are those of blocks, and `{V:x}` says that the value varies over x.

    >>> mesh = st.make_mesh((8,), ("x",), axis_types=(st.sharding.AxisType.Explicit,))
    >>> st.typeof(st.device_put(np.ones((16, 4)), st.NamedSharding(mesh, P("x"))))
    ShapedArray(float32[16@x,4])
    >>> st.typeof(2.0)
    ShapedArray(float32[], weak_type=True)
    """
    if isinstance(x, Array):
        return x.aval
    aval = getattr(x, "aval", None)
    if isinstance(aval, ArrayType):
        return aval
    return type_of_constant(x)


_NUMBERS: tuple[Any, ...] = (bool, int, float, complex)
_SCALARS = module_table("ir.typeof._SCALARS", "types of scalars, by class or dtype", 256)
NUMPY_SCALARS: dict[type, ArrayType] = {
    d.type: array_type((), d) for d in ALL_DTYPES
    if isinstance(d, np.dtype) and canonicalize_dtype(d) == d}
"""The type of numpy scalars, by their class, where it does not depend on whether x64 is on."""


def type_of_constant(x: Any) -> ArrayType:
    """The type of a numpy array or scalar, or a Python scalar (weak): whole, on no mesh."""
    kind = type(x)
    if kind in (bool, int, float, complex):
        key = (kind, x64_enabled())
        found = _SCALARS.get(key)
        if found is None:
            dtype, weak = dtype_of(x, key[1])
            found = array_type((), canonicalize_dtype(dtype, key[1]), weak)
            _SCALARS[key] = found
        if kind is int:
            check_int_fits(x, found.dtype)
        return found
    if isinstance(x, np.generic) and x.dtype in VALID_DTYPES:
        key = (x.dtype, x64_enabled())
        found = _SCALARS.get(key)
        if found is None:
            found = _SCALARS[key] = array_type((), canonicalize_dtype(x.dtype, key[1]))
        return found
    if isinstance(x, np.ndarray):
        if kind is not np.ndarray:
            refuse_masked(x)
        if x.dtype in VALID_DTYPES:
            return array_type(x.shape, canonicalize_dtype(x.dtype, x64_enabled()))
    for base in _NUMBERS:
        if isinstance(x, base):
            return type_of_constant(base(x))
    convert = getattr(x, "__jax_array__", None)
    if convert is not None:
        return typeof(convert())
    if isinstance(getattr(x, "aval", None), ArrayType):
        raise TypeError(f"A {type(x).__name__} does not have a value and cannot be used as a "
                        "constant in a JAX function.")
    raise TypeError(f"Argument '{x}' of type {type(x)} is not a valid JAX type")


def canonical_value(x: Any) -> np.ndarray:
    """A numpy array of the dtype that `x` has in programs (64-bit narrowed unless x64 is on)."""
    value = np.asarray(x)
    return value.astype(canonicalize_dtype(value.dtype, x64_enabled()), copy=False)


def refuse_masked(x: Any) -> None:
    """Raise ValueError for a masked array of numpy: what the mask hides would count."""
    if "numpy.ma" in sys.modules and isinstance(x, np.ma.MaskedArray):     # loads slowly
        raise ValueError("numpy masked arrays are not supported as direct inputs to JAX functions. "
                         "Use arr.filled() to convert the value to a standard numpy array.")


def check_int_fits(x: int, dtype: np.dtype) -> None:
    """Raise OverflowError where a Python int does not fit the dtype it would get."""
    if not -(2 ** (dtype.itemsize * 8 - 1)) <= x < 2 ** (dtype.itemsize * 8 - 1):
        raise OverflowError("An overflow was encountered while parsing an argument to a jitted "
                            f"computation: Got <class 'int'> with value {x}, which {dtype.name} "
                            "cannot hold")
